"""Words of TileLang's language module, for reasons and for the nearest ones to a misspelled word."""

from __future__ import annotations

from kir.base.diagnostic import did_you_mean

_BLACKWELL = """
    alloc_tmem deallocate_tmem tcgen05_gemm tcgen05_gemm_blockscaled tcgen05_gemm_sp tcgen05_mma tcgen05_mma_arrive tcgen05_mma_blockscaled
    tcgen05_after_thread_sync tcgen05_before_thread_sync tcgen05_cp_warpx4 tcgen05_sf_warp_transpose initialize_tcgen05_descriptor alloc_tcgen05_smem_desc
    alloc_tcgen05_instruction_desc alloc_tcgen05_instr_desc ptx_tcgen05_mma_ss ptx_tcgen05_mma_ts ptx_tcgen05_mma_blockscaled_ss tma_load_2sm
"""
_OTHERS = """
    Let Var If Then Else meta_var any all Broadcast Ramp type_annotation tvm_access_ptr __ffs warpgroup_fence_operand create_tma_descriptor
    reducer_init reducer_update tvm_storage_sync tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down cp_async_barrier_noinc ClusterKernel
    WarpSpecialize PersistentTileScheduler get_cluster_size get_cluster_dims get_block_extent float16x2 bfloat16x2 float32x2 float32x4
    Kernel Tensor StridedTensor Fragment Layout Parallel Pipelined Persistent Serial Unroll Vectorized serial unroll vectorized grid parallel
    GemmWarpPolicy Ref Ptr ptr prim_func macro dynamic symbolic dyn const dtype abs abs2 access_ptr acos acosh activemask add2 address_of align_up all_of
    all_sync alloc_barrier alloc_buffer alloc_cluster_barrier alloc_descriptor alloc_fragment alloc_global alloc_local alloc_reducer alloc_shared
    alloc_var alloc_wgmma_desc annotate_compile_flags annotate_consumer_reg_alloc annotate_l2_hit_ratio annotate_layout annotate_min_blocks_per_sm
    annotate_pass_configs annotate_producer_reg_dealloc annotate_restrict_buffers annotate_safe_value annotate_ws_schedule any_of any_sync asin asinh
    assume async_copy atan atan2 atanh atomic_add atomic_addx2 atomic_addx4 atomic_load atomic_max atomic_min atomic_or atomic_store ballot ballot_sync
    barrier_arrive barrier_wait bitwise_and bitwise_not bitwise_or bitwise_xor block_rank_in_cluster break_loop call_extern call_intrin call_pure_extern
    cast Cast cdiv ceil ceildiv clamp clear cluster_arrive cluster_arrive_relaxed cluster_sync cluster_wait clz continue_loop copy copy_cluster copysign
    cos cosh cummax cumsum dec_max_nreg device_assert disable_warp_group_reg_alloc dp4a empty erf exp exp10 exp2 fabs fast_rcp fence_proxy_async fill
    finalize_reducer floor floordiv floormod fma fma2 fmod gemm gemm_blockscaled gemm_sp get_block_binding get_block_bindings get_lane_idx
    get_thread_binding get_thread_bindings get_thread_extent get_warp_group_idx get_warp_idx get_warp_idx_sync hypot ieee_add ieee_fdiv ieee_fmaf
    ieee_frcp ieee_frsqrt ieee_fsqrt ieee_mul ieee_sub if_then_else im2col import_source inc_max_nreg infinity isfinite isinf isnan ldexp ldg128 ldg256
    ldg32 ldg64 lds128 lds32 lds64 likely log log10 log1p log2 loop_break make_tensor make_tensor_from_addr match_all_sync match_any_sync match_buffer max
    max2 max_value mbarrier_arrive mbarrier_arrive_expect_tx mbarrier_expect_tx mbarrier_wait_parity min min2 min_value mul2 named_barrier_arrive
    nearbyint nextafter no_set_max_nreg pdl_sync pdl_trigger popcount pow print ptx_commit_group ptx_cp_async ptx_mma ptx_wait_group reduce reduce_absmax
    reduce_abssum reduce_bitand reduce_bitor reduce_bitxor reduce_max reduce_min reduce_sum reinterpret reshape rng_init rng_rand rng_rand_float round
    rsqrt Select set_max_nreg shfl_down shfl_sync shfl_up shfl_xor shift_left shift_right shuffle_elect sigmoid sin sinh sqrt stg128 stg256 stg32 stg64
    sts128 sts32 sts64 sub2 sync_grid sync_threads sync_warp syncthreads_and syncthreads_count syncthreads_or tan tanh thread_binding thread_return
    tma_copy tma_gather4 tma_load tma_scatter4 tma_store_arrive tma_store_wait transpose trunc truncdiv truncmod undef use_swizzle view wait_wgmma
    warp_reduce_bitand warp_reduce_bitor warp_reduce_max warp_reduce_min warp_reduce_sum warpgroup_arrive warpgroup_commit_batch warpgroup_wait wgmma_gemm
    wgmma_gemm_sp ws
"""
BLACKWELL = frozenset(_BLACKWELL.split())
"""Words that only Blackwell's tensor memory has a use for."""
VOCABULARY = BLACKWELL | frozenset(_OTHERS.split())
"""Words that TileLang 0.1.15 has."""


def nearest(name: str, known: frozenset[str]) -> str:
    """The sentence for an unknown word of TileLang."""
    hint = did_you_mean(name, known)
    return f"TileLang has no 'T.{name}' that is known here" + (f"; {hint}" if hint else "")
