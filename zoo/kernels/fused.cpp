// Torch operators for products of rows with a weight over an algebra, forward and backward; see zoo/kernels/fused.py.
//
// With factors A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] and combined components W_r = sum_i L[r, i] w_i,
// y_k = sum_r P[r, k] W_r (Q_r . x). One parallel region of torch's threads processes tiles of rows, so that the
// combinations, products and sums of a tile stay in the cache. The order of sums depends only on the number of threads.

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;

constexpr int64_t kMostRows = 256;             // rows of a tile
constexpr int64_t kFewestRows = 32;            // rows per thread below which threads split the outputs instead of the rows
constexpr int64_t kFewProducts = 8;            // products of rows with a matrix that take as long as reading it
constexpr int64_t kWork = 1 << 20;             // multiplications per thread that outweigh waking it up
constexpr int64_t kTileBytes = 4 << 20;        // combinations and products of a tile
constexpr int64_t kGradientBytes = 256 << 20;  // gradients of all workers
constexpr int64_t kSliceBytes = 256 << 10;     // combinations of a slice of the outputs, for few rows
constexpr int64_t kMostNumbers = 1LL << 36;    // limits on tensors and on the axes of factors, so that no size overflows
constexpr int64_t kMostFactors = 1LL << 18;

// ---- Vectors of the processor's width, in GNU C; bfloat16 is summed in float32 and rounded once.
// Compilers expand wider vectors through memory, which costs more than the factored products save.

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;  // NEON, SSE
#endif

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<at::BFloat16> {
  using type = float;
};
template <class T>
using Acc = typename Accumulator<T>::type;

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
template <class A>
using Vector = std::conditional_t<std::is_same_v<A, float>, Floats, Doubles>;
template <class A>
constexpr int64_t lanes = kVectorBytes / sizeof(A);

template <class V, class T>
inline V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <>
inline Floats load<Floats, at::BFloat16>(const at::BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
#ifdef __ARM_NEON
  return (Floats)((Words)vmovl_u16((uint16x4_t)halves) << 16);  // GCC 12 converts a vector of 8 bytes one by one
#else
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
#endif
}
template <class V, class T>
inline void store(T* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}
template <>
inline void store<Floats, at::BFloat16>(at::BFloat16* to, Floats v) {
  const Words bits = (Words)v;
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words nan = (Words)(v != v);
  const Halves halves = __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0), Halves);
  std::memcpy(to, &halves, sizeof(halves));
}

template <class A>
struct Term {
  int64_t offset;
  A factor;
};

// out[j] = start[j] + sum over terms of factor * in[offset + j]
template <class Out, class In, class A>
void sum(Out* out, const In* in, const Term<A>* first, const Term<A>* last, int64_t length, const A* start) {
  using V = Vector<A>;
  constexpr int64_t w = lanes<A>, unroll = 4;
  int64_t j = 0;
  for (; j + unroll * w <= length; j += unroll * w) {
    V a[unroll] = {};
    if (start)
      for (int64_t u = 0; u < unroll; ++u) a[u] = load<V>(start + j + u * w);
    for (const Term<A>* t = first; t != last; ++t)
      for (int64_t u = 0; u < unroll; ++u) a[u] += t->factor * load<V>(in + t->offset + j + u * w);
    for (int64_t u = 0; u < unroll; ++u) store<V>(out + j + u * w, a[u]);
  }
  for (; j + w <= length; j += w) {
    V a = start ? load<V>(start + j) : V{};
    for (const Term<A>* t = first; t != last; ++t) a += t->factor * load<V>(in + t->offset + j);
    store<V>(out + j, a);
  }
  for (; j < length; ++j) {
    A a = start ? start[j] : A(0);
    for (const Term<A>* t = first; t != last; ++t) a += t->factor * A(in[t->offset + j]);
    out[j] = Out(a);
  }
}

// The nonzero coefficients of several sums over the same inputs, which are `step` numbers apart.
template <class A>
struct Sums {
  std::vector<Term<A>> terms;
  std::vector<int64_t> starts{0};
  // The matrix is [sums, inputs], or [inputs, sums] if transposed.
  Sums(const Tensor& matrix, bool transposed, int64_t step, int64_t copies = 1) {
    const A* m = matrix.const_data_ptr<A>();
    const int64_t rows = matrix.size(0), columns = matrix.size(1);
    const int64_t count = transposed ? columns : rows, inputs = transposed ? rows : columns;
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t copy = 0; copy < copies; ++copy)
        for (int64_t i = 0; i < inputs; ++i)
          if (const A factor = transposed ? m[i * columns + s] : m[s * columns + i]; factor != 0)
            terms.push_back({(copy * inputs + i) * step, factor});
      starts.push_back(terms.size());
    }
  }
  int64_t count() const { return starts.size() - 1; }
  template <class Out, class In>
  void operator()(int64_t s, Out* out, const In* in, int64_t length, const A* start = nullptr) const {
    sum(out, in, terms.data() + starts[s], terms.data() + starts[s + 1], length, start);
  }
};

// ---- A channel axis, see zoo.kernels.base.AxisLayout.

struct Axis {
  int64_t channels, n, blocks, size, width, elements;
  explicit Axis(at::IntArrayRef layout)
      : channels(checked(layout)[0]), n(layout[1]), blocks(layout[2]), size(channels / blocks), width((size + n - 1) / n),
        elements(blocks * width) {}

  static at::IntArrayRef checked(at::IntArrayRef layout) {
    TORCH_CHECK(layout.size() == 3, "expected a layout of channels, n and blocks, got ", layout);
    const int64_t channels = layout[0], n = layout[1], blocks = layout[2];
    const bool in_range = 0 < n && n <= kMostFactors && 0 < blocks && blocks <= channels && channels <= kMostNumbers;
    TORCH_CHECK(in_range && channels % blocks == 0, "expected blocks of equal size and n from 1 to ", kMostFactors, ", got ", layout);
    return layout;
  }

  // Combine the components of rows: [rows, channels] to [sums, rows, elements]; `padded` is a buffer of n * width zeros.
  template <class T>
  void gather(const T* x, int64_t stride, int64_t rows, const Sums<Acc<T>>& sums, T* out, T* padded) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = 0; block < blocks; ++block) {
        const T* from = x + row * stride + block * size;
        if (size != n * width) from = std::copy(from, from + size, padded) - size;
        for (int64_t s = 0; s < sums.count(); ++s) sums(s, out + (s * rows + row) * elements + block * width, from, width);
      }
  }

  // Sum products [.., rows, last - first] of a range of elements into the components of rows.
  template <class T>
  void scatter(const T* products, int64_t first, int64_t last, int64_t rows, const Sums<Acc<T>>& sums, const Acc<T>* bias, T* y) const {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t block = first / width; block * width < last; ++block) {
        const int64_t from = std::max(first, block * width), to = std::min(last, (block + 1) * width);
        for (int64_t k = 0; k < n; ++k) {
          const int64_t channel = k * width + from - block * width, length = std::min(to - from, size - channel);
          if (length > 0)
            sums(k, y + row * channels + block * size + channel, products + row * (last - first) + from - first, length,
                 bias ? bias + block * size + channel : nullptr);
        }
      }
  }
};

// ---- Batched products of row-major matrices; each tile runs in one thread.

template <class T>
struct Matrices {
  T* data;
  int64_t rows, columns, step;  // step is the batch stride; 0 if all matrices are the same
  bool transposed = false;
  Matrices t() const { return {data, columns, rows, step, !transposed}; }
  Tensor view(int64_t batch) const {
    const auto type = at::TensorOptions().dtype(c10::CppTypeToScalarType<std::remove_const_t<T>>::value);
    const int64_t down = transposed ? 1 : columns, across = transposed ? rows : 1;
    return at::from_blob(const_cast<std::remove_const_t<T>*>(data), {batch, rows, columns}, {step, down, across}, type);
  }
};

// The sum of a vector, by halves in registers: compilers store and load the elements of a wide vector one by one.
template <class A, class V>
A total(V v) {
  if constexpr (sizeof(V) > 16) {
    typedef A Half __attribute__((vector_size(sizeof(V) / 2)));
    Half halves[2];
    std::memcpy(halves, &v, sizeof(V));
    return total<A>(Half(halves[0] + halves[1]));
  } else {
    A parts[sizeof(V) / sizeof(A)];
    std::memcpy(parts, &v, sizeof(V));
    for (size_t half = sizeof(V) / sizeof(A) / 2; half; half /= 2)
      for (size_t l = 0; l < half; ++l) parts[l] += parts[l + half];
    return parts[0];
  }
}

// c[u, r] = a[u] . b[r] for m vectors a and one or two vectors b, all of length k; the rows of c are `step` numbers apart
template <int m, class T>
void dots(int64_t k, const T* a, const T* b, int64_t of_b, T* c, int64_t step) {
  using A = Acc<T>;
  using V = Vector<A>;
  constexpr int64_t w = lanes<A>;
  const T* second = of_b == 2 ? b + k : b;
  V sums[2][m] = {};
  int64_t j = 0;
  for (; j + w <= k; j += w) {
    const V parts[2] = {load<V>(b + j), load<V>(second + j)};
    for (int u = 0; u < m; ++u) {
      const V v = load<V>(a + u * k + j);
      sums[0][u] += parts[0] * v;
      sums[1][u] += parts[1] * v;
    }
  }
  for (int64_t r = 0; r < of_b; ++r)
    for (int u = 0; u < m; ++u) {
      A sum = total<A>(sums[r][u]);
      for (int64_t l = j; l < k; ++l) sum += A(b[r * k + l]) * A(a[u * k + l]);
      c[u * step + r] = T(sum);
    }
}

// c[m, n] = a[m, k] b[n, k]^T for few m, reading b once from memory; m sums of two rows of b stay in registers
template <class T>
void multiply_few(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  constexpr decltype(&dots<1, T>) of_rows[] = {dots<1, T>, dots<2, T>, dots<3, T>, dots<4, T>};
  for (int64_t row = 0; row < n; row += 2)
    for (int64_t u = 0; u < m; u += 4)
      of_rows[std::min<int64_t>(m - u, 4) - 1](k, a + u * k, b + row * k, std::min<int64_t>(n - row, 2), c + u * n + row, n);
}

template <class T>
void multiply(int64_t batch, Matrices<T> c, Matrices<const T> a, Matrices<const T> b) {
  Tensor out = c.view(batch);
  at::cpu::bmm_out(out, a.view(batch), b.view(batch));
}

// c = a b if first, otherwise c + a b, in the accumulation type; `spare` is a buffer for products of another type.
template <class T>
void accumulate(int64_t batch, Acc<T>* c, Matrices<const T> a, Matrices<const T> b, bool first, T* spare) {
  const int64_t m = a.rows, n = b.columns;
  if constexpr (std::is_same_v<T, Acc<T>>) {
    Tensor out = Matrices<T>{c, m, n, m * n}.view(batch);
    if (first)
      at::cpu::bmm_out(out, a.view(batch), b.view(batch));
    else
      at::cpu::baddbmm_out(out, out, a.view(batch), b.view(batch), 1, 1);
  } else {
    multiply<T>(batch, {spare, m, n, m * n}, a, b);
    const Term<Acc<T>> once{0, 1};
    sum(c, spare, &once, &once + 1, batch * m * n, first ? static_cast<Acc<T>*>(nullptr) : c);
  }
}

// ---- Buffers of a thread, reused by its next tile.

class Scratch {
 public:
  template <class T>
  T* take(int64_t count) {
    const size_t lines = (count * sizeof(T) + sizeof(Line) - 1) / sizeof(Line);
    if (parts_.size() == next_) parts_.emplace_back();
    auto& part = parts_[next_++];
    if (part.size() < lines) part.resize(lines);
    return reinterpret_cast<T*>(part.data());
  }
  static Scratch& of_thread() {
    static thread_local Scratch scratch;
    scratch.next_ = 0;
    return scratch;
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<std::vector<Line>> parts_;
  size_t next_ = 0;
};

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Number of threads for a number of multiplications.
int64_t threads(double multiplications) {
  return at::in_parallel_region() ? 1 : std::clamp<double>(multiplications / kWork, 1, at::get_num_threads());
}

// Number of rows of a tile, chosen so that all threads get the same number of tiles.
int64_t tile_of(int64_t rows, int64_t workers, int64_t bytes_of_row) {
  const int64_t most = std::clamp<int64_t>(kTileBytes / bytes_of_row, kFewestRows, kMostRows);
  return std::max<int64_t>(1, divided(rows, workers * divided(rows, workers * most)));
}

template <class T>
Tensor matrix(const Tensor& coefficients) {
  return coefficients.to(c10::CppTypeToScalarType<Acc<T>>::value).contiguous();
}

Tensor as_rows(const Tensor& x, int64_t channels) {
  Tensor rows = x.reshape({-1, channels});
  return rows.stride(1) == 1 || channels == 1 ? rows : rows.contiguous();
}

// ---- Checks of the operands, before anything is allocated. Messages name tensors as the schemas do.

using Type = std::optional<at::ScalarType>;

void check(const Tensor& t, const char* name, at::IntArrayRef sizes, Type type = std::nullopt) {
  TORCH_CHECK(t.is_cpu() && t.layout() == at::kStrided, "expected ", name, " to be a dense tensor on the CPU, got ", t.layout(), " on ",
              t.device());
  TORCH_CHECK(t.sizes() == sizes, "expected ", name, " of size ", sizes, ", got ", t.sizes());
  TORCH_CHECK(!type || t.scalar_type() == *type, "expected ", name, " of type ", *type, ", got ", t.scalar_type());
  TORCH_CHECK(t.numel() <= kMostNumbers, "expected ", name, " of at most ", kMostNumbers, " numbers, got ", t.sizes());
}

// Return the length of the first axis, which counts matrices or the rows of a factor.
int64_t count_of(const Tensor& t, const char* name, int64_t axes) {
  TORCH_CHECK(t.dim() == axes && 0 < t.size(0) && t.size(0) <= kMostFactors, "expected ", name, " with ", axes, " axes, the first from 1 to ",
              kMostFactors, ", got ", t.sizes());
  return t.size(0);
}

// Check a factor, [rows, n], and return the number of rows.
int64_t check_factor(const Tensor& t, const char* name, int64_t n) {
  const int64_t rows = count_of(t, name, 2);
  check(t, name, {rows, n});
  TORCH_CHECK(at::isFloatingType(t.scalar_type()), "expected ", name, " of floating-point numbers, got ", t.scalar_type());
  return rows;
}

// Check matrices, [m, out elements, in elements], and return their number.
int64_t check_matrices(const Tensor& t, const char* name, const Axis& out, const Axis& inp, Type type = std::nullopt) {
  const int64_t matrices = count_of(t, name, 3);
  check(t, name, {matrices, out.elements, inp.elements}, type);
  return matrices;
}

// Check rows, [..., channels].
void check_rows(const Tensor& t, const char* name, int64_t channels) {
  TORCH_CHECK(t.dim() > 0 && t.size(-1) == channels, "expected the last axis of ", name, " to have size ", channels, ", got ", t.sizes());
  check(t, name, t.sizes());
}

// Check the operands of a product with combinations of w.
void check_operands(const Tensor& x, const Tensor& w, const Tensor& left, const Tensor& right, const Tensor& result,
                    const Axis& out, const Axis& inp) {
  TORCH_CHECK(out.n == inp.n, "expected layouts of equal n, got ", out.n, " and ", inp.n);
  check_rows(x, "x", inp.channels);
  const int64_t ranks = check_factor(left, "left", check_matrices(w, "w", out, inp));
  TORCH_CHECK(check_factor(right, "right", inp.n) == ranks && check_factor(result, "result", out.n) == ranks,
              "expected factors of equal rank, got ", left.sizes(), ", ", right.sizes(), " and ", result.sizes());
}

// Return a bias that is broadcast to [channels], as torch's are.
std::optional<Tensor> check_bias(const std::optional<Tensor>& bias, int64_t channels, Type type) {
  if (!bias) return bias;
  const Tensor whole = bias->sizes() == at::IntArrayRef(channels) ? *bias : bias->expand({channels});
  check(whole, "bias", {channels}, type);
  return whole;
}

// ---- The kernels.

template <class T, class In>
void combine_(const In* w, int64_t numbers, const Sums<Acc<T>>& sums, T* out) {
  const int64_t chunk = 2048;
  at::parallel_for(0, divided(numbers, chunk), 8, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c)
      for (int64_t s = 0; s < sums.count(); ++s)
        sums(s, out + s * numbers + c * chunk, w + c * chunk, std::min(chunk, numbers - c * chunk));
  });
}

// Combine matrices: [m, out elements, in elements] to [R, ...] for the coefficients [R, m].
template <class T, class In>
Tensor combine(const Tensor& w, const Tensor& left) {
  const Tensor given = w.contiguous();
  const int64_t numbers = w.size(1) * w.size(2);
  Tensor out = at::empty({left.size(0), w.size(1), w.size(2)}, w.options().dtype(c10::CppTypeToScalarType<T>::value));
  combine_<T, In>(given.const_data_ptr<In>(), numbers, {matrix<T>(left), false, numbers}, out.mutable_data_ptr<T>());
  return out;
}

// Copy a matrix [rows, columns] to its transpose; both are contiguous along the last axis.
template <class T>
void transpose(const T* from, int64_t step, int64_t rows, int64_t columns, T* to, int64_t step_to) {
  constexpr int64_t side = 16;
  for (int64_t i = 0; i < rows; i += side)
    for (int64_t j = 0; j < columns; j += side) {
      const T* a = from + i * step + j;
      T* b = to + j * step_to + i;
      if (i + side <= rows && j + side <= columns)
        for (int64_t k = 0; k < side; ++k)
          for (int64_t l = 0; l < side; ++l) b[k * step_to + l] = a[l * step + k];
      else
        for (int64_t k = 0; k < std::min(side, columns - j); ++k)
          for (int64_t l = 0; l < std::min(side, rows - i); ++l) b[k * step_to + l] = a[l * step + k];
    }
}

// Combine the components of channels: [N, n c, positions] to y [N, sums c, positions] for the coefficients [sums, n]. Both
// x and y may be channels first or channels last in memory.
template <class T, class In>
void mix(const Tensor& x, const Tensor& coefficients, const Tensor& y) {
  const int64_t rank = check_factor(coefficients, "coefficients", coefficients.dim() == 2 ? coefficients.size(1) : 1);
  TORCH_CHECK(x.dim() == 3 && coefficients.size(1) > 0 && x.size(1) % coefficients.size(1) == 0, "expected x with 3 axes, whose channels ",
              coefficients.sizes(), " divides, got ", x.sizes());
  check(x, "x", x.sizes());
  check(y, "y", {x.size(0), x.size(1) / coefficients.size(1) * rank, x.size(2)}, x.scalar_type());
  at::assert_no_overlap(y, x);
  const bool given_last = x.transpose(1, 2).is_contiguous(), last = y.transpose(1, 2).is_contiguous();
  TORCH_CHECK(last || y.is_contiguous(), "expected y to be contiguous, with channels first or last");
  if (y.numel() == 0) return;
  const Tensor given = given_last ? x : x.contiguous();
  const int64_t count = x.size(0), places = x.size(2), n = coefficients.size(1), width = x.size(1) / n;
  const int64_t channels = n * width, combined = coefficients.size(0) * width, tile = 32, tiles = divided(places, tile);
  const Sums<Acc<T>> sums(matrix<T>(coefficients), false, width);
  const T* xs = given.const_data_ptr<T>();
  T* ys = y.mutable_data_ptr<T>();
  at::parallel_for(0, count * tiles, 1 + kWork / (tile * combined), [&](int64_t begin, int64_t end) {
    Scratch& scratch = Scratch::of_thread();
    T* rows_in = scratch.take<T>(tile * channels);
    T* rows_out = scratch.take<T>(tile * combined);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / tiles, place = task % tiles * tile, b = std::min(tile, places - place);
      const T* from = xs + image * places * channels + (given_last ? place * channels : place);
      T* to = ys + image * places * combined + (last ? place * combined : place);
      if (!given_last) transpose(from, places, channels, b, rows_in, channels);
      for (int64_t row = 0; row < b; ++row)
        for (int64_t s = 0; s < sums.count(); ++s)
          sums(s, (last ? to : rows_out) + row * combined + s * width, (given_last ? from : rows_in) + row * channels, width);
      if (!last) transpose(rows_out, combined, b, combined, to, places);
    }
  });
}

// Multiply rows by the matrices w, or by their combinations with `left`. Matrix r multiplies combination r of a row, or all
// combinations (`pairs`) if there is a result for every pair. The operands are checked.
template <class T, class In>
Tensor products(const Tensor& x, const Tensor& w, const std::optional<Tensor>& left, const Tensor& right, const Tensor& result,
                const std::optional<Tensor>& bias, Axis out, Axis inp) {
  using A = Acc<T>;
  const Tensor rows_of_x = as_rows(x, inp.channels);
  const int64_t rows = rows_of_x.size(0), i = inp.elements, o = out.elements, stride = rows_of_x.stride(0);
  const int64_t matrices = left ? left->size(0) : w.size(0), gathered = right.size(0);
  const bool pairs = result.size(0) != matrices || gathered != matrices;
  const int64_t each = pairs ? gathered : 1;
  const int64_t workers = threads(double(std::max(rows * each, kFewProducts)) * matrices * i * o);
  auto shape = x.sizes().vec();
  shape.back() = out.channels;
  Tensor y = at::empty(shape, x.options());
  if (rows == 0) return y;
  const bool few = rows < kFewestRows * workers;
  const int64_t tile = tile_of(rows, few ? 1 : workers, sizeof(T) * (gathered * i + matrices * each * o));
  int64_t slice = few ? std::min(o, 16 * divided(divided(o, workers), 16)) : o;
  if (few && left) slice = std::min(slice, std::max<int64_t>(16, 16 * (kSliceBytes / (16 * matrices * i * sizeof(T)))));
  const Tensor whole = left && !few ? combine<T, In>(w, *left) : w.contiguous(), shift = bias ? matrix<T>(*bias) : Tensor();
  const bool combines = left && few;
  const Sums<A> of_w(matrix<T>(combines ? *left : right), false, o * i), of_x(matrix<T>(right), false, inp.width);
  const Tensor of_result = matrix<T>(result);
  const T* xs = rows_of_x.const_data_ptr<T>();
  T* ys = y.mutable_data_ptr<T>();
  const int64_t slices = divided(o, slice), tiles = divided(rows, tile);
  at::parallel_for(0, tiles * slices, workers == 1 ? tiles * slices : 1, [&](int64_t begin, int64_t end) {
    Scratch& scratch = Scratch::of_thread();
    T* of_rows = scratch.take<T>(gathered * tile * i);
    T* parts = scratch.take<T>(matrices * each * tile * slice);
    T* padded = scratch.take<T>(inp.n * inp.width);
    T* combined = scratch.take<T>(combines ? matrices * slice * i : 0);
    std::fill(padded, padded + inp.n * inp.width, T(0));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task % tiles * tile, b = std::min(tile, rows - row);
      const int64_t first = task / tiles * slice, width = std::min(slice, o - first);
      const Sums<A> of_y(of_result, true, b * width);
      inp.gather(xs + row * stride, stride, b, of_x, of_rows, padded);
      const T* by = combined;
      if (combines)
        for (int64_t m = 0; m < matrices; ++m) of_w(m, combined + m * width * i, whole.const_data_ptr<In>() + first * i, width * i);
      else
        by = whole.const_data_ptr<T>() + first * i;
      const int64_t step = combines ? width * i : o * i, count = b * each;
      if (count <= kFewProducts)
        for (int64_t m = 0; m < matrices; ++m)
          multiply_few<T>(count, width, i, of_rows + (pairs ? 0 : m * b * i), by + m * step, parts + m * count * width);
      else
        multiply<T>(matrices, {parts, count, width, count * width}, {of_rows, count, i, pairs ? 0 : b * i},
                    Matrices<const T>{by, width, i, step}.t());
      out.scatter(parts, first, first + width, b, of_y, bias ? shift.const_data_ptr<A>() : nullptr, ys + row * out.channels);
    }
  });
  return y;
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Return the needed gradients of x, w, left, right, result and bias; the others are empty.
template <class T, class In>
Gradients gradients(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& left, const Tensor& right,
                    const Tensor& result, Axis out, Axis inp, std::array<bool, 6> needs) {
  using A = Acc<T>;
  // Clang 14 and 15 cannot capture structured bindings in the function of the threads.
  const bool need_x = needs[0], need_w = needs[1], need_left = needs[2], need_right = needs[3], need_result = needs[4];
  const bool need_bias = needs[5];
  const bool need_matrices = need_w || need_left;
  const Tensor rows_of_x = as_rows(x, inp.channels), rows_of_g = as_rows(g, out.channels);
  const int64_t rows = rows_of_x.size(0), i = inp.elements, o = out.elements, ranks = left.size(0), n = inp.n;
  const auto sums = x.options().dtype(c10::CppTypeToScalarType<A>::value);
  // Every worker has its own gradient of the matrices.
  const int64_t fitting = need_matrices ? std::max<int64_t>(1, kGradientBytes / (ranks * o * i * sizeof(A))) : rows + 1;
  const int64_t most = std::min(threads(double(rows) * ranks * i * o), fitting), tile = tile_of(std::max<int64_t>(rows, 1), most, sizeof(T) * ranks * (2 * i + o));
  const int64_t tiles = divided(rows, tile), share = divided(tiles, most), workers = tiles ? divided(tiles, share) : 0;
  Tensor gx = need_x ? at::empty(x.sizes(), x.options()) : Tensor(at::empty({0}, x.options()));
  Tensor gm = need_matrices ? at::empty({workers, ranks, o, i}, sums) : Tensor();
  Tensor gr = at::zeros({workers, need_right ? ranks : 0, n}, sums), gs = at::zeros({workers, need_result ? ranks : 0, n}, sums);
  Tensor gb = at::zeros({workers, need_bias ? out.channels : 0}, sums);
  const Tensor whole = combine<T, In>(w, left), q = matrix<T>(right), p = matrix<T>(result);
  const Sums<A> of_x(q, false, inp.width), of_g(p, false, out.width);
  const Term<A> once{0, A(1)};
  const Tensor eye = at::zeros({n, n}, sums);
  for (int64_t k = 0; k < n; ++k) eye.mutable_data_ptr<A>()[k * n + k] = 1;
  const Sums<A> of_components_x(eye, false, inp.width), of_components_g(eye, false, out.width);
  const T *xs = rows_of_x.const_data_ptr<T>(), *gs_ = rows_of_g.const_data_ptr<T>();
  const Matrices<const T> matrices{whole.const_data_ptr<T>(), o, i, o * i};
  at::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
    Scratch& scratch = Scratch::of_thread();
    T* gathered = scratch.take<T>(ranks * tile * i);
    T* of_y = scratch.take<T>(ranks * tile * o);
    T* parts = scratch.take<T>(ranks * tile * (need_result ? std::max(i, o) : i));
    T* components = scratch.take<T>(need_right || need_result ? n * tile * std::max(i, o) : 0);
    T* padded = scratch.take<T>(n * std::max(inp.width, out.width));
    T* spare = std::is_same_v<T, A> ? nullptr : scratch.take<T>(ranks * std::max(o * i, n));
    const auto zeros = [&](const Axis& axis) { std::fill(padded, padded + n * axis.width, T(0)); return padded; };
    for (int64_t worker = begin; worker < end; ++worker)
      for (int64_t t = worker * share; t < std::min(tiles, (worker + 1) * share); ++t) {
        const bool first = t == worker * share;
        const int64_t row = t * tile, b = std::min(tile, rows - row), stride_x = rows_of_x.stride(0), stride_g = rows_of_g.stride(0);
        const T *x_tile = xs + row * stride_x, *g_tile = gs_ + row * stride_g;
        if (need_bias) {
          A* total = gb.mutable_data_ptr<A>() + worker * out.channels;
          for (int64_t r = 0; r < b; ++r) sum(total, g_tile + r * stride_g, &once, &once + 1, out.channels, total);
        }
        if (need_matrices || need_result) inp.gather(x_tile, stride_x, b, of_x, gathered, zeros(inp));
        if (need_result) {
          multiply<T>(ranks, {parts, b, o, b * o}, {gathered, b, i, b * i}, matrices.t());
          out.gather(g_tile, stride_g, b, of_components_g, components, zeros(out));
          accumulate<T>(1, gs.mutable_data_ptr<A>() + worker * ranks * n, {parts, ranks, b * o, 0},
                        Matrices<const T>{components, n, b * o, 0}.t(), first, spare);
        }
        out.gather(g_tile, stride_g, b, of_g, of_y, zeros(out));
        const Matrices<const T> y_tile{of_y, b, o, b * o};
        if (need_matrices)
          accumulate<T>(ranks, gm.mutable_data_ptr<A>() + worker * ranks * o * i, y_tile.t(), {gathered, b, i, b * i}, first, spare);
        if (need_x || need_right) multiply<T>(ranks, {parts, b, i, b * i}, y_tile, matrices);
        if (need_right) {
          inp.gather(x_tile, stride_x, b, of_components_x, components, zeros(inp));
          accumulate<T>(1, gr.mutable_data_ptr<A>() + worker * ranks * n, {parts, ranks, b * i, 0},
                        Matrices<const T>{components, n, b * i, 0}.t(), first, spare);
        }
        if (need_x) {
          const Sums<A> of_gx(q, true, b * i);
          inp.scatter(parts, 0, i, b, of_gx, static_cast<const A*>(nullptr), gx.mutable_data_ptr<T>() + row * inp.channels);
        }
      }
  });
  Tensor gw = at::zeros({0}, w.options()), gl = at::zeros({0}, sums);
  if (need_left) {
    gm = gm.sum(0, true);
    gl = at::mm(gm.view({ranks, -1}), w.to(sums.dtype()).reshape({left.size(1), -1}).t());
  }
  if (need_w) {
    gw = at::empty(w.sizes(), w.options());
    const Sums<A> of_w(matrix<T>(left), true, o * i, gm.size(0));
    combine_<In, A>(gm.const_data_ptr<A>(), o * i, of_w, gw.mutable_data_ptr<In>());
  }
  const auto total = [](bool need, const Tensor& parts, const Tensor& like) {
    return need ? parts.sum(0).to(like.scalar_type()) : at::empty({0}, like.options());
  };
  return {gx, gw, gl.to(left.scalar_type()), total(need_right, gr, right), total(need_result, gs, result), gb.sum(0)};
}

// ---- Dispatch on types: x and the components have one type, or x is bfloat16 and the components are float32.

#define ZOO_DISPATCH(x, w, CALL)                                                           \
  [&] {                                                                                    \
    const auto of_x = (x).scalar_type(), of_w = (w).scalar_type();                         \
    if (of_x == at::kFloat && of_w == at::kFloat) return CALL(float, float);               \
    if (of_x == at::kDouble && of_w == at::kDouble) return CALL(double, double);           \
    if (of_x == at::kBFloat16 && of_w == at::kFloat) return CALL(at::BFloat16, float);     \
    TORCH_CHECK(of_x == at::kBFloat16 && of_w == at::kBFloat16, "unsupported types: ", of_x, ", ", of_w); \
    return CALL(at::BFloat16, at::BFloat16);                                               \
  }()

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& left, const Tensor& right, const Tensor& result,
              const std::optional<Tensor>& bias, at::IntArrayRef out_layout, at::IntArrayRef inp_layout) {
  const Axis out(out_layout), inp(inp_layout);
  check_operands(x, w, left, right, result, out, inp);
  const auto shift = check_bias(bias, out.channels, x.scalar_type());
#define CALL(T, In) products<T, In>(x, w, left, right, result, shift, out, inp)
  return ZOO_DISPATCH(x, w, CALL);
#undef CALL
}

Tensor combined(const Tensor& x, const Tensor& matrices, const Tensor& right, const Tensor& result,
                const std::optional<Tensor>& bias, at::IntArrayRef out_layout, at::IntArrayRef inp_layout) {
  const Axis out(out_layout), inp(inp_layout);
  TORCH_CHECK(out.n == inp.n, "expected layouts of equal n, got ", out.n, " and ", inp.n);
  check_rows(x, "x", inp.channels);
  const int64_t count = check_matrices(matrices, "matrices", out, inp, x.scalar_type());
  const int64_t gathered = check_factor(right, "right", inp.n), results = check_factor(result, "result", out.n);
  TORCH_CHECK((count == gathered && count == results) || count * gathered == results, "expected a result for every matrix or every pair, got ",
              matrices.sizes(), ", right of size ", right.sizes(), " and result of size ", result.sizes());
  const auto shift = check_bias(bias, out.channels, x.scalar_type());
#define CALL(T, In) products<T, T>(x, matrices, std::nullopt, right, result, shift, out, inp)
  return ZOO_DISPATCH(x, matrices, CALL);
#undef CALL
}

Tensor combinations(const Tensor& x, const Tensor& w, const Tensor& left) {
  check(x, "x", x.sizes());
  check_factor(left, "left", count_of(w, "w", 3));
  check(w, "w", w.sizes());
#define CALL(T, In) combine<T, In>(w, left)
  return ZOO_DISPATCH(x, w, CALL);
#undef CALL
}

void mixed(const Tensor& x, const Tensor& coefficients, const Tensor& y) {
#define CALL(T, In) mix<T, In>(x, coefficients, y)
  ZOO_DISPATCH(x, y, CALL);
#undef CALL
}

Gradients backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& left, const Tensor& right,
                   const Tensor& result, at::IntArrayRef out_layout, at::IntArrayRef inp_layout, std::array<bool, 6> needs) {
  const Axis out(out_layout), inp(inp_layout);
  check_operands(x, w, left, right, result, out, inp);
  auto sizes = x.sizes().vec();
  sizes.back() = out.channels;
  check(g, "g", sizes, x.scalar_type());
#define CALL(T, In) gradients<T, In>(g, x, w, left, right, result, out, inp, needs)
  return ZOO_DISPATCH(x, w, CALL);
#undef CALL
}

}  // namespace

TORCH_LIBRARY_IMPL(zoo, CPU, m) {
  m.impl("fused_linear", linear);
  m.impl("fused_rows", linear);
  m.impl("fused_combined", combined);
  m.impl("fused_combinations", combinations);
  m.impl("fused_backward", backward);
  m.impl("fused_mix", mixed);
}
