// Integers of 16 and 8 bits, several in a register (CUDA Math API, SIMD intrinsics): each part by itself.

__device__ inline unsigned __vadd2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) + (y & 0xffffu)) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) + (y >> 16)) & 0xffffu) << 16;
}

__device__ inline unsigned __vsub2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) - (y & 0xffffu)) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) - (y >> 16)) & 0xffffu) << 16;
}

__device__ inline unsigned __vmaxu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>(max((x & 0xffffu), (y & 0xffffu))) & 0xffffu)
         | (static_cast<unsigned>(max((x >> 16), (y >> 16))) & 0xffffu) << 16;
}

__device__ inline unsigned __vminu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>(min((x & 0xffffu), (y & 0xffffu))) & 0xffffu)
         | (static_cast<unsigned>(min((x >> 16), (y >> 16))) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpgeu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) >= (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) >= (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetgeu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) >= (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) >= (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpgtu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) > (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) > (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetgtu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) > (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) > (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpleu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) <= (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) <= (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetleu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) <= (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) <= (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpltu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) < (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) < (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetltu2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) < (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) < (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vmaxs2(unsigned x, unsigned y) {
  return (static_cast<unsigned>(max((static_cast<int>(x << 16) >> 16), (static_cast<int>(y << 16) >> 16))) & 0xffffu)
         | (static_cast<unsigned>(max((static_cast<int>(x) >> 16), (static_cast<int>(y) >> 16))) & 0xffffu) << 16;
}

__device__ inline unsigned __vmins2(unsigned x, unsigned y) {
  return (static_cast<unsigned>(min((static_cast<int>(x << 16) >> 16), (static_cast<int>(y << 16) >> 16))) & 0xffffu)
         | (static_cast<unsigned>(min((static_cast<int>(x) >> 16), (static_cast<int>(y) >> 16))) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpges2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) >= (static_cast<int>(y << 16) >> 16) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) >= (static_cast<int>(y) >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetges2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) >= (static_cast<int>(y << 16) >> 16) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) >= (static_cast<int>(y) >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpgts2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) > (static_cast<int>(y << 16) >> 16) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) > (static_cast<int>(y) >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetgts2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) > (static_cast<int>(y << 16) >> 16) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) > (static_cast<int>(y) >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmples2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) <= (static_cast<int>(y << 16) >> 16) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) <= (static_cast<int>(y) >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetles2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) <= (static_cast<int>(y << 16) >> 16) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) <= (static_cast<int>(y) >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmplts2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) < (static_cast<int>(y << 16) >> 16) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) < (static_cast<int>(y) >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetlts2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 16) >> 16) < (static_cast<int>(y << 16) >> 16) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((static_cast<int>(x) >> 16) < (static_cast<int>(y) >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpeq2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) == (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) == (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vseteq2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) == (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) == (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vcmpne2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) != (y & 0xffffu) ? 0xffffu : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) != (y >> 16) ? 0xffffu : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vsetne2(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffffu) != (y & 0xffffu) ? 1u : 0u) & 0xffffu)
         | (static_cast<unsigned>((x >> 16) != (y >> 16) ? 1u : 0u) & 0xffffu) << 16;
}

__device__ inline unsigned __vadd4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) + (y & 0xffu)) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) + ((y >> 8) & 0xffu)) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) + ((y >> 16) & 0xffu)) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) + (y >> 24)) & 0xffu) << 24;
}

__device__ inline unsigned __vsub4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) - (y & 0xffu)) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) - ((y >> 8) & 0xffu)) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) - ((y >> 16) & 0xffu)) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) - (y >> 24)) & 0xffu) << 24;
}

__device__ inline unsigned __vmaxu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>(max((x & 0xffu), (y & 0xffu))) & 0xffu)
         | (static_cast<unsigned>(max(((x >> 8) & 0xffu), ((y >> 8) & 0xffu))) & 0xffu) << 8
         | (static_cast<unsigned>(max(((x >> 16) & 0xffu), ((y >> 16) & 0xffu))) & 0xffu) << 16
         | (static_cast<unsigned>(max((x >> 24), (y >> 24))) & 0xffu) << 24;
}

__device__ inline unsigned __vminu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>(min((x & 0xffu), (y & 0xffu))) & 0xffu)
         | (static_cast<unsigned>(min(((x >> 8) & 0xffu), ((y >> 8) & 0xffu))) & 0xffu) << 8
         | (static_cast<unsigned>(min(((x >> 16) & 0xffu), ((y >> 16) & 0xffu))) & 0xffu) << 16
         | (static_cast<unsigned>(min((x >> 24), (y >> 24))) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpgeu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) >= (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) >= ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) >= ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) >= (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetgeu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) >= (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) >= ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) >= ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) >= (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpgtu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) > (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) > ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) > ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) > (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetgtu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) > (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) > ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) > ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) > (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpleu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) <= (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) <= ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) <= ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) <= (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetleu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) <= (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) <= ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) <= ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) <= (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpltu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) < (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) < ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) < ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) < (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetltu4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) < (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) < ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) < ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) < (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vmaxs4(unsigned x, unsigned y) {
  return (static_cast<unsigned>(max((static_cast<int>(x << 24) >> 24), (static_cast<int>(y << 24) >> 24))) & 0xffu)
         | (static_cast<unsigned>(max((static_cast<int>(x << 16) >> 24), (static_cast<int>(y << 16) >> 24))) & 0xffu) << 8
         | (static_cast<unsigned>(max((static_cast<int>(x << 8) >> 24), (static_cast<int>(y << 8) >> 24))) & 0xffu) << 16
         | (static_cast<unsigned>(max((static_cast<int>(x) >> 24), (static_cast<int>(y) >> 24))) & 0xffu) << 24;
}

__device__ inline unsigned __vmins4(unsigned x, unsigned y) {
  return (static_cast<unsigned>(min((static_cast<int>(x << 24) >> 24), (static_cast<int>(y << 24) >> 24))) & 0xffu)
         | (static_cast<unsigned>(min((static_cast<int>(x << 16) >> 24), (static_cast<int>(y << 16) >> 24))) & 0xffu) << 8
         | (static_cast<unsigned>(min((static_cast<int>(x << 8) >> 24), (static_cast<int>(y << 8) >> 24))) & 0xffu) << 16
         | (static_cast<unsigned>(min((static_cast<int>(x) >> 24), (static_cast<int>(y) >> 24))) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpges4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) >= (static_cast<int>(y << 24) >> 24) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) >= (static_cast<int>(y << 16) >> 24) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) >= (static_cast<int>(y << 8) >> 24) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) >= (static_cast<int>(y) >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetges4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) >= (static_cast<int>(y << 24) >> 24) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) >= (static_cast<int>(y << 16) >> 24) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) >= (static_cast<int>(y << 8) >> 24) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) >= (static_cast<int>(y) >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpgts4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) > (static_cast<int>(y << 24) >> 24) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) > (static_cast<int>(y << 16) >> 24) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) > (static_cast<int>(y << 8) >> 24) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) > (static_cast<int>(y) >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetgts4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) > (static_cast<int>(y << 24) >> 24) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) > (static_cast<int>(y << 16) >> 24) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) > (static_cast<int>(y << 8) >> 24) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) > (static_cast<int>(y) >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmples4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) <= (static_cast<int>(y << 24) >> 24) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) <= (static_cast<int>(y << 16) >> 24) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) <= (static_cast<int>(y << 8) >> 24) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) <= (static_cast<int>(y) >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetles4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) <= (static_cast<int>(y << 24) >> 24) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) <= (static_cast<int>(y << 16) >> 24) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) <= (static_cast<int>(y << 8) >> 24) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) <= (static_cast<int>(y) >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmplts4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) < (static_cast<int>(y << 24) >> 24) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) < (static_cast<int>(y << 16) >> 24) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) < (static_cast<int>(y << 8) >> 24) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) < (static_cast<int>(y) >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetlts4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((static_cast<int>(x << 24) >> 24) < (static_cast<int>(y << 24) >> 24) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>((static_cast<int>(x << 16) >> 24) < (static_cast<int>(y << 16) >> 24) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>((static_cast<int>(x << 8) >> 24) < (static_cast<int>(y << 8) >> 24) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((static_cast<int>(x) >> 24) < (static_cast<int>(y) >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpeq4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) == (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) == ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) == ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) == (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vseteq4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) == (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) == ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) == ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) == (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vcmpne4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) != (y & 0xffu) ? 0xffu : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) != ((y >> 8) & 0xffu) ? 0xffu : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) != ((y >> 16) & 0xffu) ? 0xffu : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) != (y >> 24) ? 0xffu : 0u) & 0xffu) << 24;
}

__device__ inline unsigned __vsetne4(unsigned x, unsigned y) {
  return (static_cast<unsigned>((x & 0xffu) != (y & 0xffu) ? 1u : 0u) & 0xffu)
         | (static_cast<unsigned>(((x >> 8) & 0xffu) != ((y >> 8) & 0xffu) ? 1u : 0u) & 0xffu) << 8
         | (static_cast<unsigned>(((x >> 16) & 0xffu) != ((y >> 16) & 0xffu) ? 1u : 0u) & 0xffu) << 16
         | (static_cast<unsigned>((x >> 24) != (y >> 24) ? 1u : 0u) & 0xffu) << 24;
}
