"""Parameters of TileLang's words by name, so that a misspelled one is not passed over."""

from __future__ import annotations

from typing import NamedTuple

from kir.base.diagnostic import did_you_mean

from ..values.values import NotUnderstood, Signature

_TABLE = """
    Add And Div EQ FloorDiv FloorMod GE GT LE LT Max Min Mod Mul NE Or Sub floordiv floormod max min truncdiv truncmod | a b
    Cast | dtype value / round sat
    ClusterKernel Kernel | / threads prelude cluster_dims
    Not | a
    Parallel | / coalesced_width loop_layout prefer_async
    Persistent | domain wave_size index / group_size num_stages
    Pipelined | start / stop num_stages order stage
    Select | condition true_value false_value
    Serial serial | start / stop step
    StridedTensor | shape strides / dtype
    Tensor | shape / dtype data
    Unroll unroll | start / stop step explicit unroll_factor
    Vectorized parallel vectorized | start / stop
    __cos __exp __exp10 __log __log10 __log2 __sin __tan abs acos acosh asin asinh atan atanh bitwise_not ceil clz cos cosh erf exp exp10 exp2 fabs
            fast_rcp floor isfinite isinf isnan log log10 log1p log2 nearbyint popcount round rsqrt sigmoid sin sinh sqrt tan tanh trunc | x
    activemask block_rank_in_cluster break_loop cluster_arrive cluster_sync cluster_wait sync_grid get_block_bindings get_cluster_size continue_loop
            disable_warp_group_reg_alloc fence_proxy_async get_lane_idx get_thread_bindings get_warp_group_idx get_warp_idx get_warp_idx_sync grid
            loop_break no_set_max_nreg pdl_sync pdl_trigger ptx_commit_group thread_return tma_store_arrive warpgroup_arrive warpgroup_commit_batch ws |
    alloc_global | shape dtype / scope
    annotate_consumer_reg_alloc annotate_producer_reg_dealloc | / reg_count
    align_up bitwise_and bitwise_or bitwise_xor fmod pow shift_left shift_right | x y
    all_of any_of clear | buffer
    all_sync any_sync ballot_sync | predicate / mask
    alloc_barrier | arrive_count
    alloc_buffer | shape / dtype scope
    alloc_fragment alloc_local alloc_shared | shape dtype / scope
    alloc_reducer | shape dtype / op replication
    access_ptr | base / access_type offset extent ignore_last_ndim
    annotate_l2_hit_ratio | l2_hit_ratio_map
    annotate_pass_configs | configs
    annotate_safe_value | safe_value_map
    atomic_addx2 atomic_addx4 | dst value / return_prev
    dp4a | A B C
    print | / obj msg warp_group_id warp_id
    ptx_cp_async | dst src num_elems / predicate
    reducer_init | reducer / init
    reducer_update | target value
    alloc_tmem | shape dtype
    alloc_var | / dtype scope init
    annotate_layout | layout_map
    annotate_min_blocks_per_sm | n
    assume | / cond
    async_copy | src dst / coalesced_width loop_layout
    atan2 copysign hypot nextafter | x1 x2
    atomic_add | dst value / memory_order return_prev use_tma
    atomic_load | src / memory_order
    atomic_max atomic_min | dst value / memory_order return_prev
    atomic_or | dst value / memory_order
    atomic_store | dst src / memory_order
    attr | node attr_key value
    ballot | predicate
    barrier_arrive | mbarrier
    barrier_wait mbarrier_wait_parity | mbarrier parity
    c2d_im2col im2col | img col nhw_step c_step kernel stride dilation pad / eviction_policy annotations
    call_extern call_pure_extern | / dtype func_name
    cast | value dtype / round sat
    reinterpret | value dtype
    cdiv ceildiv | lhs rhs
    clamp | dst min_val max_val
    comm_reducer | combiner identity
    const dynamic symbolic | / name dtype
    copy | src dst / coalesced_width disable_tma eviction_policy prefer_instruction loop_layout
    cummax cumsum | src / dst dim reverse
    dec_max_nreg inc_max_nreg | reg_count
    dtype evaluate warp_reduce_max warp_reduce_min warp_reduce_sum | value
    empty | / dtype
    fill | buffer value
    finalize_reducer | reducer / dst batch
    fma | x y z
    ieee_fmaf | x y z / rounding_mode
    ieee_frcp ieee_fsqrt | x / rounding_mode
    gemm wgmma_gemm | A B C / transpose_A transpose_B policy clear_accum k_pack wg_wait
    shuffle_elect | thread_extent
    tvm_storage_sync | storage_scope
    tvm_warp_shuffle | mask value warp_id width warp_size
    tvm_warp_shuffle_down tvm_warp_shuffle_up | mask value offset width warp_size
    warp_reduce_bitand warp_reduce_bitor | value
    get_block_binding get_block_extent get_thread_binding get_thread_extent | / dim
    ieee_add ieee_fdiv ieee_mul ieee_sub | x y / rounding_mode
    if_then_else | cond t f
    infinity max_value min_value | dtype
    likely | cond
    match_any_sync | value / mask
    mbarrier_arrive | mbarrier / cta_id
    mbarrier_arrive_expect_tx mbarrier_expect_tx | mbarrier tx
    named_barrier_arrive | barrier_id thread_count
    ptx_wait_group | num
    reduce | / buffer out reduce_type dim clear batch src dst
    reduce_absmax reduce_max reduce_min | / buffer out dim clear batch nan_propagate src dst
    reduce_abssum | / buffer out dim batch src dst
    reduce_bitand reduce_bitor reduce_bitxor reduce_sum | / buffer out dim clear batch src dst
    reshape | src shape
    set_max_nreg | reg_count is_inc
    shfl_down shfl_up shfl_xor | value delta / width mask
    shfl_sync | value srcLane / width mask
    sync_threads | / barrier_id arrive_count
    sync_warp | / mask
    tma_copy | src dst / barrier cluster_mask leader_scope_threads eviction_policy
    tma_store_wait | / count read
    transpose | src dst
    use_swizzle | panel_size / order enable
    view | src / shape dtype
    wait_wgmma | id
    warpgroup_wait | num_mma
"""
"""Words, and the names of their parameters, those that must be given before the slash (signatures of tilelang 0.1.15)."""
EVERYWHERE = frozenset({"annotations", "span"})


class Row(NamedTuple):
    """What must be given, in order, and what may be."""

    required: tuple[str, ...]
    optional: frozenset[str]


def _rows() -> dict[str, Row]:
    out: dict[str, Row] = {}
    for line in _TABLE.replace("\n" + " " * 12, " ").splitlines():
        words, _, names = line.partition("|")
        required, _, optional = names.partition("/")
        out.update(dict.fromkeys(words.split(), Row(tuple(required.split()), frozenset(optional.split()))))
    return out


PARAMETERS = _rows()


def settled(word: str, given: Signature) -> Signature:
    """What a word is given, with required arguments by position. Raises NotUnderstood for one that is missing or that the word does not have."""
    row = PARAMETERS.get(word)
    if row is None:
        return given
    args, named = list(given.args), dict(given.named)
    for name in row.required[len(args):]:
        if name not in named:
            break
        args.append(named.pop(name))
    for name, value in named.items():
        if name not in row.optional | EVERYWHERE and value is not None and value is not False:
            hint = did_you_mean(name, (*row.required, *row.optional))
            raise NotUnderstood(f"'{name}' of 'T.{word}' is no parameter that is read" + (f"; {hint}" if hint else ""))
    if len(args) < len(row.required):
        raise NotUnderstood(f"'T.{word}' lacks '{row.required[len(args)]}'")
    return Signature(args, named)
