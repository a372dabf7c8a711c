"""When two programs of one thread are one, and when they are not: forms that a written program is read back in."""
from __future__ import annotations

import textwrap

from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.corpus.roundtrip.same.threads import same_thread

HEAD = """kir 1
program p
  scalar n: i32
  in x: f32[4096] align 16
  in h: f16[4096] align 16
  inout y: f32[4096] align 16
  out c: i8[4096] align 16
  size e: i32
  in z: f32[e] align 16
  inout w: i32[64] align 16
kernel k grid (b: 4) threads 64
"""
SAME = {
    "an array that nothing names": (
        "shared s: f32[64]\nfor t in 0..64 parallel thread\n  y[t] = x[t]",
        "for t in 0..64 parallel thread\n  y[t] = x[t]"),
    "a view as wide as what it shows": (
        "shared s: i32[64]\nview shared v: f32[64] at s\nfor t in 0..64 parallel thread\n  v[t] = x[t]\n  barrier()\n  y[t] = v[63 - t]",
        "shared s: i32[64]\nfor t in 0..64 parallel thread\n  s[t] = cast(x[t], i32, bits)\n  barrier()\n  y[t] = cast(s[63 - t], f32, bits)"),
    "a view of a part": (
        "shared s: u8[1024]\nview shared v: f32[256] at s\nfor t in 0..64 parallel thread\n  v[t] = x[t]\n  barrier()\n  y[t] = v[63 - t]",
        "shared s: u8[1024]\nview shared v: f32[64] at s[0]\nfor t in 0..64 parallel thread\n  v[t] = x[t]\n  barrier()\n  y[t] = v[63 - t]"),
    "an array that is filled whole": (
        "for t in 0..64 parallel thread\n  register a: f32[1, 4] = 0.0\n  for i in 0..4 unroll\n    a[0, i] = a[0, i] + x[t * 4 + i]\n"
        "    y[t * 4 + i] = a[0, i]",
        "for t in 0..64 parallel thread\n  register a: f32[1, 4]\n  a[0, 0 +: 4] = 0.0\n  for i in 0..4 unroll\n    a[0, i] = a[0, i] + x[t * 4 + i]\n"
        "    y[t * 4 + i] = a[0, i]"),
    "a value of a load": (
        "for t in 0..64 parallel thread\n  let a = 1.0 - x[t]\n  y[t] = a * a\n  y[t + 64] = a",
        "for t in 0..64 parallel thread\n  let a = x[t]\n  y[t] = (1.0 - a) * (1.0 - a)\n  y[t + 64] = 1.0 - a"),
    "a choice and a branch": (
        "for t in 0..64 parallel thread\n  y[t] = select(n > t, exp(load(x[t] where n > t else 0.0)), 1.0)",
        "for t in 0..64 parallel thread\n  if n > t\n    y[t] = exp(x[t])\n  else\n    y[t] = 1.0"),
    "a variable that is set anew": (
        "for t in 0..64 parallel thread\n  register a: f32 = x[t]\n  for i in 0..4\n    a = a * a\n"
        "  let was = a\n  a = was + 1.0\n  y[t] = was\n  y[t + 64] = a * a",
        "for t in 0..64 parallel thread\n  register a: f32 = x[t]\n  for i in 0..4\n    a = a * a\n"
        "  let next = a + 1.0\n  y[t] = a\n  y[t + 64] = next * next"),
    "an element of a vector that is made": (
        "for t in 0..64 parallel thread\n  let v = vec(x[t], x[t + 64])\n  y[t] = pick(v, 1)",
        "for t in 0..64 parallel thread\n  y[t] = x[t + 64]"),
    "rows by the counters' ranges": (
        "shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  for i in 0..4 unroll\n    s[i, t] = x[t]\n  barrier()\n  y[t] = s[n, 63 - t]",
        "shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  for i in 0..4 unroll\n    s[(i * 64 + t) // 64, (i * 64 + t) % 64] = x[t]\n  barrier()\n"
        "  y[t] = s[n, 63 - t]"),
    "rows whose counters end where the launch says": (
        "shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  for i in 0..n\n    s[1, i * 16 + t % 16] = x[t]\n  barrier()\n  y[t] = s[1, 63 - t]",
        "shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  for i in 0..n\n    s[(i * 16 + t % 16 + 64) // 64, (i * 16 + t % 16 + 64) % 64] = x[t]\n"
        "  barrier()\n  y[t] = s[1, 63 - t]"),
    "values that are named and worked out elsewhere": (
        "for t in 0..64 parallel thread\n  let a = x[t] * 2.0\n  let m = h[t]\n  y[t] = a + cast(m, f32)\n  y[t + 64] = a",
        "for t in 0..64 parallel thread\n  let v = cast(h[t], f32)\n  let a = x[t]\n  y[t] = 2.0 * a + v\n  y[t + 64] = a * 2.0"),
    "sums of two kinds, a turn at a time": (
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  register q: f32 = 0.0\n  for i in 0..n\n    a = a + x[t + i]\n    q = q + a * a\n"
        "  y[t] = a\n  y[t + 64] = q",
        "for t in 0..64 parallel thread\n  register idle: i32 = 0\n  register a: f32 = 0.0\n  register q: f32 = 0.0\n  for i in 0..n\n"
        "    let v = x[t + i] + a\n"
        "    idle = idle + 1\n    q = v * v + q\n    a = v\n  y[t] = a\n  y[t + 64] = q"),
    "loops that end early": (
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  for i in 0..n\n    if x[i] > 1.0\n      break\n    a = a + x[i]\n  y[t] = a",
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  for i in 0..n\n    let v = x[i]\n    if 1.0 < v\n      break\n    a = v + a\n  y[t] = a"),
    "a number that is put together of its bytes": (
        "shared s: u8[1024]\nview shared v: i32[256] at s\nfor t in 0..64 parallel thread\n  v[t] = n\n  barrier()\n  y[t] = cast(v[63 - t], f32)",
        "shared s: u8[1024]\nfor t in 0..64 parallel thread\n  s[t * 4 +: 4] = unpack(pack(unpack(n, dtype=u8), dtype=u32), dtype=u8)\n  barrier()\n"
        "  y[t] = cast(cast(pack(s[(63 - t) * 4 +: 4], dtype=u32), i32, bits), f32)"),
    "a register's halves": (
        "for t in 0..64 parallel thread\n  register u: u32 = cast(n, u32)\n  view register v: u16[2] at u\n  v[1] = 3:u16\n  y[t] = cast(u, f32)",
        "for t in 0..64 parallel thread\n  let low = pick(unpack(cast(n, u32), dtype=u16), 0)\n  y[t] = cast(pack(vec(low, 3:u16), dtype=u32), f32)"),
    "elements one by one": (
        "for t in 0..64 parallel thread\n  register a: f32[4]\n  for i in 0..4\n    a[i] = x[t * 4 + i] * 2.0\n  y[t * 4 +: 4] = a",
        "for t in 0..64 parallel thread\n  let v = x[t * 4 +: 4] * 2.0\n  for i in 0..4 unroll\n    y[t * 4 + i] = pick(v, i)"),
    "a number held to a range": (
        "for t in 0..64 parallel thread\n  c[t] = cast(n + t, i8, sat)",
        "for t in 0..64 parallel thread\n  c[t] = cast(max(min(n + t, 127), -128), i8)"),
    "an exact widening before a conversion down": (
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(h[t], i32, rd), f32)",
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(cast(h[t], f32), i32, rd), f32)"),
    "a place that is named in 32 bits before it is widened": (
        "for t in 0..64 parallel thread\n  let p = cast(n * 4 + t, i64)\n  y[t] = z[p + 3:i64]",
        "for t in 0..64 parallel thread\n  y[t] = z[n * 4 + t + 3]"),
    "a quotient of what is summed in 32 bits in both": (
        "for t in 0..64 parallel thread\n  let p = n * 4 + t\n  y[t] = z[tdiv(p, 8) + 1]",
        "for t in 0..64 parallel thread\n  y[t] = z[cast(tdiv(n * 4 + t, 8), i64) + 1:i64]"),
    "a branch that is always taken": (
        "for t in 0..64 parallel thread\n  if true\n    y[t] = x[t]\n  else\n    y[t] = 1.0",
        "for t in 0..64 parallel thread\n  y[t] = x[t]"),
    "an exchange of a vector": (
        "for t in 0..64 parallel thread\n  y[t * 2 +: 2] = shfl_down(x[t * 2 +: 2], 4)",
        "for t in 0..64 parallel thread\n  let u = shfl_down(x[t * 2], 4)\n  y[t * 2 +: 2] = vec(u, shfl_down(x[t * 2 + 1], 4))"),
    "a number that is widened in two steps": (
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(cast(cast(n, u8), u16), i32), f32)",
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(cast(n, u8), i32), f32)"),
    "an array of bytes that is one of numbers": (
        "shared s: u8[256]\nview shared v: f16[128] at s\nview shared u: f32[64] at s\n"
        "for t in 0..64 parallel thread\n  v[t] = h[t]\n  barrier()\n  y[t] = u[t]",
        "shared s: f16[128]\nview shared u: f32[64] at s\nfor t in 0..64 parallel thread\n  s[t] = h[t]\n  barrier()\n  y[t] = u[t]"),
    "atomics of a CTA's own memory": (
        "shared s: i32[64] = 0\nfor t in 0..64 parallel thread\n  atomic_add(&s[n], 1, scope=cta)\n  barrier()\n  y[t] = cast(s[t], f32)",
        "shared s: i32[64] = 0\nfor t in 0..64 parallel thread\n  atomic_add(&s[n], 1)\n  barrier()\n  y[t] = cast(s[t], f32)"),
    "a mask of a vector and a branch": (
        "for t in 0..64 parallel thread\n  let u = load(x[t +: 2] where t < n else 0.0)\n  y[t * 2 +: 2] = u where t < n",
        "for t in 0..64 parallel thread\n  let u = load(x[t +: 2] where t < n else 0.0)\n  if t < n\n    y[t * 2 +: 2] = u"),
    "a condition that is asked where others hold": (
        "for t in 0..64 parallel thread\n  if x[t] < 1.0 | x[t] == 1.0 & z[t] < x[n]\n    y[t] = 1.0",
        "for t in 0..64 parallel thread\n  let q = x[t] == 1.0 & ~(x[t] < 1.0)\n"
        "  if x[t] < 1.0 | x[t] == 1.0 & load(z[t] where q else 0.0) < load(x[n] where q else 9.0)\n    y[t] = 1.0"),
}
ONE_WAY = {
    "a value read where a branch is not taken": (
        "for t in 0..64 parallel thread\n  let a = x[t * n]\n  if t < n\n    y[t] = a",
        "for t in 0..64 parallel thread\n  if t < n\n    y[t] = x[t * n]"),
    "a value read behind a way out": (
        "for t in 0..64 parallel thread\n  for i in 0..n\n    let a = z[i * n]\n    if t < n\n      if i > 5\n        break\n    y[t] = a",
        "for t in 0..64 parallel thread\n  for i in 0..n\n    if t < n\n      if i > 5\n        break\n    y[t] = z[i * n]"),
    "a value read behind a loop that may return": (
        "for t in 0..64 parallel thread\n  let a = z[t * n]\n  for i in 0..n\n    if x[i] > 1.0\n      return\n  y[t] = a",
        "for t in 0..64 parallel thread\n  for i in 0..n\n    if x[i] > 1.0\n      return\n  y[t] = z[t * n]"),
    "what the first reads in any case the second may read where it needs it": (
        "for t in 0..64 parallel thread\n  let a = z[t * n]\n  y[t] = select(t < n, a, 0.0)\n  y[t + 64] = a",
        "for t in 0..64 parallel thread\n  let m = load(z[t * n] where t < n else 0.0)\n  y[t] = m\n  y[t + 64] = z[t * n]"),
    "sums of 32 bits inside of others": (
        "for t in 0..64 parallel thread\n  y[t] = z[cast(n * 4 + t, i64) + 3:i64]",
        "for t in 0..64 parallel thread\n  y[t] = z[n * 4 + t + 3]"),
    "a quotient of what is summed in 64 bits": (
        "for t in 0..64 parallel thread\n  y[t] = z[tdiv(n * 4 + t, 8)]",
        "for t in 0..64 parallel thread\n  y[t] = z[tdiv(cast(n, i64) * 4:i64 + cast(t, i64), 8:i64)]"),
    "a sum of parts that wrap": (
        "for t in 0..64 parallel thread\n  y[t] = z[cast(n * 12, i64) + cast(t, i64) - cast(n, i64) * 11:i64]",
        "for t in 0..64 parallel thread\n  y[t] = z[cast(n, i64) * 12:i64 + cast(t, i64) - cast(n, i64) * 11:i64]"),
    "bytes of an array with more of them than 32 bits count": (
        "for t in 0..64 parallel thread\n  view global v: u8[cast(e, i64) * 4:i64] at z\n  y[t] = cast(v[n * 4 + t], f32)",
        "for t in 0..64 parallel thread\n  view global v: u8[cast(e, i64) * 4:i64] at z\n  y[t] = cast(v[cast(n, i64) * 4:i64 + cast(t, i64)], f32)"),
}
"""Programs that are one where the first is the one that was read, and two the other way round."""
OTHER = {
    "another place of a view": (
        SAME["a view as wide as what it shows"][0],
        SAME["a view as wide as what it shows"][1].replace("63 - t", "t")),
    "the value and not its bits": (
        SAME["a view as wide as what it shows"][0],
        SAME["a view as wide as what it shows"][1].replace("cast(s[63 - t], f32, bits)", "cast(s[63 - t], f32)")),
    "a view that begins elsewhere": (
        SAME["a view of a part"][0],
        SAME["a view of a part"][1].replace("s[0]", "s[16]")),
    "an array of which a part is filled": (
        SAME["an array that is filled whole"][0],
        SAME["an array that is filled whole"][1].replace("a[0, 0 +: 4] = 0.0", "a[0, 0 +: 3] = 0.0")),
    "a choice by another condition": (
        SAME["a choice and a branch"][0],
        SAME["a choice and a branch"][1].replace("if n > t", "if n >= t")),
    "what was there before": (
        SAME["a variable that is set anew"][0],
        SAME["a variable that is set anew"][1].replace("y[t] = a", "y[t] = next")),
    "another element": (
        SAME["an element of a vector that is made"][0],
        SAME["an element of a vector that is made"][1].replace("x[t + 64]", "x[t]")),
    "a counter that may leave its row": (
        SAME["rows by the counters' ranges"][0].replace("s[i, t]", "s[i, t * 2]"),
        SAME["rows by the counters' ranges"][1].replace("i * 64 + t)", "i * 64 + t * 2)")),
    "rows that the first names as rows": (
        SAME["rows whose counters end where the launch says"][1],
        SAME["rows whose counters end where the launch says"][0].replace("s[1, i * 16", "s[0, i * 16")),
    "rows that are left for others": (
        SAME["rows whose counters end where the launch says"][0],
        SAME["rows whose counters end where the launch says"][0].replace("s[1, i * 16 + t % 16]", "s[0, i * 16 + t % 16 + 64]")),
    "values of another place": (
        SAME["values that are named and worked out elsewhere"][0],
        SAME["values that are named and worked out elsewhere"][1].replace("x[t]", "x[t + 1]")),
    "a value read after a write": (
        "for t in 0..64 parallel thread\n  let a = y[t]\n  y[t] = x[t]\n  y[t + 64] = a",
        "for t in 0..64 parallel thread\n  y[t] = x[t]\n  let a = y[t]\n  y[t + 64] = a"),
    "a value read after a write through a view": (
        "shared s: u8[256]\nfor t in 0..64 parallel thread\n  view shared v: i32[64] at s\n  for i in 0..n\n"
        "    let a = s[t]\n    v[t] = n\n    y[t] = cast(a, f32)",
        "shared s: u8[256]\nfor t in 0..64 parallel thread\n  view shared v: i32[64] at s\n  for i in 0..n\n"
        "    v[t] = n\n    let a = s[t]\n    y[t] = cast(a, f32)"),
    "a value read before a barrier": (
        "shared s: f32[64]\nfor t in 0..64 parallel thread\n  let a = s[63 - t]\n  barrier()\n  y[t] = a",
        "shared s: f32[64]\nfor t in 0..64 parallel thread\n  barrier()\n  let a = s[63 - t]\n  y[t] = a"),
    "a value read in each turn": (
        "for t in 0..64 parallel thread\n  let a = y[t]\n  for i in 0..n\n    y[t] = a + 1.0",
        "for t in 0..64 parallel thread\n  for i in 0..n\n    let a = y[t]\n    y[t] = a + 1.0"),
    "lanes that meet in a branch": (
        "for t in 0..64 parallel thread\n  let a = shfl_xor(x[t], 1)\n  if t < n\n    y[t] = a",
        "for t in 0..64 parallel thread\n  if t < n\n    y[t] = shfl_xor(x[t], 1)"),
    "sums that change places": (
        SAME["sums of two kinds, a turn at a time"][0],
        SAME["sums of two kinds, a turn at a time"][1].replace("q = v * v + q", "q = v * a + q")),
    "a sum of what came before it": (
        SAME["sums of two kinds, a turn at a time"][0],
        SAME["sums of two kinds, a turn at a time"][0].replace("    a = a + x[t + i]\n    q = q + a * a\n", "    q = q + a * a\n    a = a + x[t + i]\n")),
    "a sum whose turns end elsewhere": (
        SAME["sums of two kinds, a turn at a time"][0],
        SAME["sums of two kinds, a turn at a time"][1].replace("0..n", "0..n + 1")),
    "a loop that ends a turn later": (
        SAME["loops that end early"][0],
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  for i in 0..n\n    let v = x[i]\n    a = v + a\n    if 1.0 < v\n      break\n  y[t] = a"),
    "bytes in another order": (
        SAME["a number that is put together of its bytes"][0],
        SAME["a number that is put together of its bytes"][1].replace("* 4 +: 4]", "* 4 + 1 +: 4]")),
    "the other half": (
        SAME["a register's halves"][0],
        SAME["a register's halves"][1].replace("vec(low, 3:u16)", "vec(3:u16, low)")),
    "the elements the other way round": (
        SAME["elements one by one"][0],
        SAME["elements one by one"][1].replace("pick(v, i)", "pick(v, 3 - i)")),
    "stores in another order": (
        "for t in 0..64 parallel thread\n  y[t] = 1.0\n  y[n] = 2.0",
        "for t in 0..64 parallel thread\n  y[n] = 2.0\n  y[t] = 1.0"),
    "a difference the other way round": (
        "for t in 0..64 parallel thread\n  y[t] = x[t] - x[t + 64]",
        "for t in 0..64 parallel thread\n  y[t] = x[t + 64] - x[t]"),
    "atomics in another order": (
        "for t in 0..64 parallel thread\n  let a = atomic_add(&y[t], 1.0)\n  let m = atomic_max(&y[t], 2.0)\n  y[t + 64] = a + m",
        "for t in 0..64 parallel thread\n  let m = atomic_max(&y[t], 2.0)\n  let a = atomic_add(&y[t], 1.0)\n  y[t + 64] = a + m"),
    "what was there before an atomic": (
        "for t in 0..64 parallel thread\n  let v = y[n]\n  let a = atomic_add(&y[t], 1.0)\n  y[t + 64] = a + v",
        "for t in 0..64 parallel thread\n  let a = atomic_add(&y[t], 1.0)\n  let v = y[n]\n  y[t + 64] = a + v"),
    "a loop of few turns, one of them left out": (
        SAME["elements one by one"][0],
        SAME["elements one by one"][0].replace("for i in 0..4", "for i in 0..3")),
    "a store under another mask": (
        "for t in 0..64 parallel thread\n  y[t * 4 +: 4] = x[t * 4 +: 4] where t * 4 + iota(4) < n",
        "for t in 0..64 parallel thread\n  for i in 0..4 unroll\n    if t * 4 + i <= n\n      y[t * 4 + i] = x[t * 4 + i]"),
    "branches that store to two places": (
        "for t in 0..64 parallel thread\n  if t < n\n    y[t] = 1.0\n  else\n    y[t + 64] = 2.0",
        "for t in 0..64 parallel thread\n  y[t] = select(t < n, 1.0, 2.0)"),
    "a choice where its condition does not hold": (
        "for t in 0..64 parallel thread\n  y[t] = select(t < n, 1.0 + select(t < n, x[t], 3.0), 2.0)",
        "for t in 0..64 parallel thread\n  y[t] = select(t < n, 1.0 + 3.0, 2.0)"),
    "a value read in one branch and in another after a write": (
        "for t in 0..64 parallel thread\n  if t < n\n    y[t + 64] = y[t]\n  y[t] = x[t]\n  if t < n\n    y[t + 128] = y[t]",
        "for t in 0..64 parallel thread\n  if t < n\n    let a = y[t]\n    y[t + 64] = a\n    y[t + 128] = a\n  y[t] = x[t]"),
    "a quotient that rounds down of what rounds to zero": (
        "for t in 0..64 parallel thread\n  y[t] = cast((n + t) // 4 * 4 + trem(n + t, 4), f32)",
        "for t in 0..64 parallel thread\n  y[t] = cast(n + t, f32)"),
    "a sum that wraps before it is wider": (
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(n * n + t, i64) % 7:i64, f32)",
        "for t in 0..64 parallel thread\n  y[t] = cast((cast(n, i64) * cast(n, i64) + cast(t, i64)) % 7:i64, f32)"),
    "the sign of a number that is narrowed": (
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(cast(n, i8), i32), f32)",
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(cast(n, u8), i32), f32)"),
    "a number that no half holds": (
        "for t in 0..64 parallel thread\n  y[t] = cast(cast(x[t], f16), f32)",
        "for t in 0..64 parallel thread\n  y[t] = x[t]"),
    "a minimum of floats the other way round": (
        "for t in 0..64 parallel thread\n  y[t] = min(x[t], x[t + 64])",
        "for t in 0..64 parallel thread\n  y[t] = min(x[t + 64], x[t])"),
    "a comparison that holds for what is no number": (
        "for t in 0..64 parallel thread\n  y[t] = select(~(x[t] < 1.0), 1.0, 2.0)",
        "for t in 0..64 parallel thread\n  y[t] = select(x[t] >= 1.0, 1.0, 2.0)"),
    "an array that a call may change": (
        "shared s: f32[64]\nfor t in 0..64 parallel thread\n  s[t] = x[t]\n  copy x[t +: 1] -> s[n +: 1] via cp_async\n  y[t] = s[t]",
        "shared s: f32[64]\nfor t in 0..64 parallel thread\n  s[t] = x[t]\n  let v = s[t]\n  copy x[t +: 1] -> s[n +: 1] via cp_async\n  y[t] = v"),
    "a loop that is left with what came before": (
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  for i in 0..n\n    if x[i] > 1.0\n      a = 5.0\n      break\n  y[t] = a",
        "for t in 0..64 parallel thread\n  register a: f32 = 0.0\n  for i in 0..n\n    if x[i] > 1.0\n      break\n  y[t] = a"),
    "values that two turns apart hand on": (
        "for t in 0..64 parallel thread\n  register a: f32 = 1.0\n  register p: f32 = 1.0\n  for i in 0..n\n"
        "    let s = a + p\n    p = a\n    a = s\n  y[t] = a",
        "for t in 0..64 parallel thread\n  register a: f32 = 1.0\n  register p: f32 = 1.0\n  for i in 0..n\n"
        "    let s = a + p\n    a = s\n    p = s\n  y[t] = a"),
    "another range": (
        SAME["a number held to a range"][0],
        SAME["a number held to a range"][1].replace("127", "126")),
    "a view of what was there before": (
        "for t in 0..64 parallel thread\n  register a: f32[2] = 0.0\n  view register v: u8[8] at a\n  a[0] = x[t]\n  let u = a[1]\n  a = u + 1.0\n"
        "  y[t] = a[0] + cast(v[0], f32)",
        "for t in 0..64 parallel thread\n  register a: f32[2] = 0.0\n  view register v: u8[8] at a\n  a[0] = x[t]\n  let u = a[1]\n"
        "  register r: f32[2] = u + 1.0\n  y[t] = r[0] + cast(v[0], f32)"),
    "a place in 32 bits that is another": (
        SAME["a place that is named in 32 bits before it is widened"][0],
        SAME["a place that is named in 32 bits before it is widened"][1].replace("t + 3", "t + 2")),
    "a branch that is never taken": (
        SAME["a branch that is always taken"][0].replace("true", "false"),
        SAME["a branch that is always taken"][1]),
    "an exchange of other lanes": (
        SAME["an exchange of a vector"][0],
        SAME["an exchange of a vector"][1].replace("x[t * 2 + 1], 4", "x[t * 2 + 1], 8")),
    "an exchange of a vector the other way round": (
        SAME["an exchange of a vector"][0],
        SAME["an exchange of a vector"][1].replace("vec(u, shfl_down(x[t * 2 + 1], 4))", "vec(shfl_down(x[t * 2 + 1], 4), u)")),
    "a sign that is widened": (
        SAME["a number that is widened in two steps"][0].replace("u8), u16", "i8), u16"),
        SAME["a number that is widened in two steps"][1].replace("u8", "i8")),
    "an array of bytes that begins elsewhere": (
        SAME["an array of bytes that is one of numbers"][0].replace("v[t] =", "v[t + 64] ="),
        SAME["an array of bytes that is one of numbers"][1]),
    "an array that is shorter": (
        SAME["an array of bytes that is one of numbers"][0],
        SAME["an array of bytes that is one of numbers"][1].replace("f16[128]", "f16[256]")),
    "atomics that others see, of a CTA alone": (
        "for t in 0..64 parallel thread\n  atomic_add(&w[n], 1, scope=cta)",
        "for t in 0..64 parallel thread\n  atomic_add(&w[n], 1)"),
    "a mask of one element and not of the next": (
        SAME["a mask of a vector and a branch"][0].replace("= u where t < n", "= u where t + iota(2) < n"),
        SAME["a mask of a vector and a branch"][1]),
    "a condition that is asked where the others do not hold": (
        SAME["a condition that is asked where others hold"][0],
        SAME["a condition that is asked where others hold"][1].replace("q = x[t] == 1.0 & ~(", "q = x[t] == 1.0 & (")),
    "a condition beside one that says nothing of it": (
        SAME["a condition that is asked where others hold"][0],
        SAME["a condition that is asked where others hold"][1].replace("x[t] < 1.0 | x[t] == 1.0 & load", "x[t] < 1.0 | load")),
    "conditions that are made of each other": (
        "for t in 0..64 parallel thread\n  let p = t < n\n  if p & select(p, x[t], x[n]) < 1.0\n    y[t] = 1.0",
        "for t in 0..64 parallel thread\n  let p = t < n\n  if x[t] < 1.0\n    y[t] = 1.0"),
    "rounded the other way": (
        SAME["an exact widening before a conversion down"][0],
        SAME["an exact widening before a conversion down"][1].replace("i32, rd", "i32, ru")),
}


def program(body: str) -> Program:
    return parse_program(HEAD + textwrap.indent(body, "  ") + "\n")


def test_forms_that_a_language_reads_back_are_one() -> None:
    assert [what for what, (a, b) in SAME.items() if not same_thread(program(a), program(b))] == []


def test_some_are_one_by_what_the_first_takes_for_granted() -> None:
    assert [what for what, (a, b) in ONE_WAY.items() if not same_thread(program(a), program(b)) or same_thread(program(b), program(a))] == []


def test_programs_that_differ_are_two() -> None:
    assert [what for what, (a, b) in OTHER.items() if same_thread(program(a), program(b)) or same_thread(program(b), program(a))] == []


def test_a_row_that_the_first_presupposes_may_be_held_by_a_remainder_and_not_the_other_way_round() -> None:
    plain = program("shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  s[1, t + n] = x[t]\n  barrier()\n  y[t] = s[1, t]")
    held = program("shared s: f32[4, 64]\nfor t in 0..64 parallel thread\n  s[1, (t + n) % 64] = x[t]\n  barrier()\n  y[t] = s[1, t]")
    assert same_thread(plain, held)
    assert not same_thread(held, plain)
