// A graph of ONNX operators, computed in plain JavaScript. A tensor is {data, dims}; whole numbers are Int32Arrays.
"use strict";
const Kernels = (() => {
  const KINDS = { float32: Float32Array, int64: Int32Array, int32: Int32Array, int8: Int8Array, uint8: Uint8Array };

  // The weights of a page: one string of base64, and where in it each of them lies.
  function readWeights(text, places) {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    const weights = {};
    for (const [name, kind, dims, start] of places) {
      const length = size(dims);
      if (kind === "int64") {
        const whole = new BigInt64Array(bytes.buffer, start, length);
        weights[name] = { data: Int32Array.from(whole, Number), dims };
      } else {
        weights[name] = { data: new KINDS[kind](bytes.buffer, start, length), dims };
      }
    }
    return weights;
  }

  // The nodes that depend on inputs; what depends on weights alone is computed here, once, and becomes a weight.
  function folded(nodes, weights) {
    return nodes.filter(([op, given, [made], attributes]) => {
      if (!given.every((name) => name in weights)) return true;
      weights[made] = OPS[op](...given.map((name) => weights[name]), attributes);
      return false;
    });
  }

  // What the nodes make of the inputs; a result is forgotten after its last use.
  function run(nodes, weights, inputs, output) {
    const values = { ...inputs };
    const last = {};
    nodes.forEach(([, given], index) => given.forEach((name) => (last[name] = index)));
    nodes.forEach(([op, given, made, attributes], index) => {
      const found = OPS[op](...given.map((name) => values[name] ?? weights[name]), attributes);
      made.forEach((name, place) => (values[name] = made.length > 1 ? found[place] : found));
      for (const name of given) if (last[name] === index && name !== output) delete values[name];
    });
    return values[output];
  }

  const size = (dims) => dims.reduce((product, dim) => product * dim, 1);
  const like = (tensor, data) => ({ data, dims: tensor.dims });
  const axisOf = (axis, dims) => (axis < 0 ? axis + dims.length : axis);

  const each = (change) => (x) => {
    const data = new Float32Array(x.data.length);
    for (let i = 0; i < data.length; i++) data[i] = change(x.data[i]);
    return like(x, data);
  };

  // Two tensors, of which either may be repeated along dims where it has 1 or none.
  const both = (join) => (a, b) => {
    const rank = Math.max(a.dims.length, b.dims.length);
    const wide = [a, b].map(({ dims }) => [...Array(rank - dims.length).fill(1), ...dims]);
    const dims = wide[0].map((dim, axis) => (dim === 1 ? wide[1][axis] : dim));
    const data = new (a.data.constructor === b.data.constructor ? a.data.constructor : Float32Array)(size(dims));
    const [stepsA, stepsB] = wide.map((own) => steps(own).map((step, axis) => (own[axis] === 1 ? 0 : step)));
    const inner = dims[rank - 1] ?? 1;
    const innerA = stepsA[rank - 1] ?? 0;
    const innerB = stepsB[rank - 1] ?? 0;
    const place = Array(Math.max(rank - 1, 0)).fill(0);
    let atA = 0;
    let atB = 0;
    for (let start = 0; start < data.length; start += inner) {
      for (let i = 0; i < inner; i++) data[start + i] = join(a.data[atA + i * innerA], b.data[atB + i * innerB]);
      for (let axis = rank - 2; axis >= 0; axis--) {
        atA += stepsA[axis];
        atB += stepsB[axis];
        if (++place[axis] < dims[axis]) break;
        atA -= stepsA[axis] * dims[axis];
        atB -= stepsB[axis] * dims[axis];
        place[axis] = 0;
      }
    }
    return { data, dims };
  };

  function steps(dims) {
    const found = Array(dims.length).fill(1);
    for (let axis = dims.length - 2; axis >= 0; axis--) found[axis] = found[axis + 1] * dims[axis + 1];
    return found;
  }

  // Rows of a, (..., M, K), times b: (K, N) for all, or (..., K, N).
  function multiply(a, b) {
    const [rows, shared] = a.dims.slice(-2);
    const columns = b.dims[b.dims.length - 1];
    const batch = size(a.dims.slice(0, -2));
    const perBatch = b.dims.length > 2 ? shared * columns : 0;
    const data = new Float32Array(batch * rows * columns);
    const sum = new Float64Array(columns);
    for (let row = 0; row < batch * rows; row++) {
      const from = Math.floor(row / rows) * perBatch;
      sum.fill(0);
      for (let k = 0; k < shared; k++) {
        const factor = a.data[row * shared + k];
        const at = from + k * columns;
        if (factor !== 0) for (let j = 0; j < columns; j++) sum[j] += factor * b.data[at + j];
      }
      data.set(sum, row * columns);
    }
    return { data, dims: [...a.dims.slice(0, -1), columns] };
  }

  // Splits the last axis into groups of `width` values, and calls `change` with where each begins.
  function rowWise(x, change) {
    const width = x.dims[x.dims.length - 1];
    for (let start = 0; start < x.data.length; start += width) change(start, start + width);
  }

  function norm(x, scale, shift, { epsilon }) {
    const data = new Float32Array(x.data.length);
    rowWise(x, (start, end) => {
      let mean = 0;
      for (let i = start; i < end; i++) mean += x.data[i];
      mean /= end - start;
      let variance = 0;
      for (let i = start; i < end; i++) variance += (x.data[i] - mean) ** 2;
      const factor = 1 / Math.sqrt(variance / (end - start) + epsilon);
      for (let i = start; i < end; i++) {
        data[i] = (x.data[i] - mean) * factor * scale.data[i - start] + (shift ? shift.data[i - start] : 0);
      }
    });
    return like(x, data);
  }

  function softmax(x) {
    const data = new Float32Array(x.data.length);
    rowWise(x, (start, end) => {
      let most = -Infinity;
      for (let i = start; i < end; i++) most = Math.max(most, x.data[i]);
      let total = 0;
      for (let i = start; i < end; i++) total += data[i] = Math.exp(x.data[i] - most);
      for (let i = start; i < end; i++) data[i] /= total;
    });
    return like(x, data);
  }

  function transpose(x, { perm }) {
    const dims = perm.map((axis) => x.dims[axis]);
    const from = steps(x.dims);
    const step = perm.map((axis) => from[axis]);
    const data = new x.data.constructor(x.data.length);
    const place = Array(dims.length).fill(0);
    let at = 0;
    for (let i = 0; i < data.length; i++) {
      data[i] = x.data[at];
      for (let axis = dims.length - 1; axis >= 0; axis--) {
        at += step[axis];
        if (++place[axis] < dims[axis]) break;
        at -= step[axis] * dims[axis];
        place[axis] = 0;
      }
    }
    return { data, dims };
  }

  function gather(x, index) {
    const width = size(x.dims.slice(1));
    const data = new x.data.constructor(index.data.length * width);
    index.data.forEach((row, at) => data.set(x.data.subarray(row * width, (row + 1) * width), at * width));
    return { data, dims: [...index.dims, ...x.dims.slice(1)] };
  }

  function split(x, { num_outputs: count }) {
    const width = x.dims[x.dims.length - 1];
    const part = width / count;
    const dims = [...x.dims.slice(0, -1), part];
    const found = Array.from({ length: count }, () => ({ data: new x.data.constructor(size(dims)), dims }));
    rowWise(x, (start, end) => {
      found.forEach(({ data }, place) => {
        data.set(x.data.subarray(start + place * part, start + (place + 1) * part), (start / width) * part);
      });
    });
    return found;
  }

  function concat(a, b) {
    const [widthA, widthB] = [a, b].map(({ dims }) => dims[dims.length - 1]);
    const data = new Float32Array(a.data.length + b.data.length);
    for (let row = 0; row * widthA < a.data.length; row++) {
      data.set(a.data.subarray(row * widthA, (row + 1) * widthA), row * (widthA + widthB));
      data.set(b.data.subarray(row * widthB, (row + 1) * widthB), row * (widthA + widthB) + widthA);
    }
    return { data, dims: [...a.dims.slice(0, -1), widthA + widthB] };
  }

  // Over the last axis, which stays as 1.
  const reduced = (join, first) => (x) => {
    const width = x.dims[x.dims.length - 1];
    const data = new x.data.constructor(x.data.length / width);
    rowWise(x, (start, end) => {
      let value = first;
      for (let i = start; i < end; i++) value = join(value, x.data[i]);
      data[start / width] = value;
    });
    return { data, dims: [...x.dims.slice(0, -1), 1] };
  };

  function summed(x) {
    const data = x.data.slice();
    rowWise(x, (start, end) => {
      for (let i = start + 1; i < end; i++) data[i] += data[i - 1];
    });
    return like(x, data);
  }

  function reshape(x, shape) {
    const dims = Array.from(shape.data, (dim, axis) => (dim === 0 ? x.dims[axis] : dim));
    return { data: x.data, dims };
  }

  function unsqueeze(x, axes) {
    const dims = [...x.dims];
    const rank = dims.length + axes.data.length;
    for (const axis of axes.data) dims.splice(axis < 0 ? axis + rank : axis, 0, 1);
    return { data: x.data, dims };
  }

  function squeeze(x, axes) {
    const gone = new Set(Array.from(axes.data, (axis) => axisOf(axis, x.dims)));
    return { data: x.data, dims: x.dims.filter((_, axis) => !gone.has(axis)) };
  }

  function range(start, end, step) {
    const data = [];
    for (let value = start.data[0]; value < end.data[0]; value += step.data[0]) data.push(value);
    return { data: Int32Array.from(data), dims: [data.length] };
  }

  // To whole numbers around a zero, halves to the even one.
  function quantize(x, scale, zero) {
    const data = new Uint8Array(x.data.length);
    for (let i = 0; i < data.length; i++) {
      const value = Math.fround(x.data[i] / scale.data[0]);
      let whole = Math.round(value);
      if (whole - value === 0.5 && whole % 2 !== 0) whole--;
      data[i] = Math.min(255, Math.max(0, whole + zero.data[0]));
    }
    return like(x, data);
  }

  // Back to numbers: one scale and zero for all, or a scale for each column.
  function dequantize(x, scale, zero) {
    const columns = scale.data.length;
    const middle = zero.data?.[0] ?? 0;
    const data = new Float32Array(x.data.length);
    for (let i = 0; i < data.length; i++) data[i] = (x.data[i] - middle) * scale.data[i % columns];
    return like(x, data);
  }

  // Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7.
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    const value = 1 - sum * Math.exp(-x * x);
    return x < 0 ? -value : value;
  }

  const GELU = {
    none: each((x) => 0.5 * x * (1 + erf(x / Math.SQRT2))),
    tanh: each((x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))),
  };
  const OPS = {
    Abs: (x) => like(x, x.data.map(Math.abs)),
    Add: both((a, b) => a + b),
    And: both((a, b) => a & b),
    Cast: (x, { to }) => like(x, new KINDS[to](x.data)),
    Concat: concat,
    Cos: each(Math.cos),
    CumSum: summed,
    DequantizeLinear: dequantize,
    Div: both((a, b) => a / b),
    Equal: both((a, b) => (a === b ? 1 : 0)),
    Gather: gather,
    Gelu: (x, { approximate }) => GELU[approximate](x),
    Greater: both((a, b) => (a > b ? 1 : 0)),
    LayerNormalization: (x, scale, shift, attributes) =>
      attributes ? norm(x, scale, shift, attributes) : norm(x, scale, null, shift),
    MatMul: multiply,
    Max: both(Math.max),
    Mul: both((a, b) => a * b),
    Neg: each((x) => -x),
    QuantizeLinear: quantize,
    Range: range,
    ReduceMax: reduced(Math.max, -Infinity),
    ReduceMin: reduced(Math.min, Infinity),
    ReduceSum: reduced((a, b) => a + b, 0),
    Relu: each((x) => Math.max(x, 0)),
    Reshape: reshape,
    Shape: (x) => ({ data: Int32Array.from(x.dims), dims: [x.dims.length] }),
    Sigmoid: each((x) => 1 / (1 + Math.exp(-x))),
    Sin: each(Math.sin),
    Softmax: softmax,
    Split: split,
    Squeeze: squeeze,
    Sub: both((a, b) => a - b),
    Tanh: each(Math.tanh),
    Transpose: transpose,
    Unsqueeze: unsqueeze,
  };

  return { readWeights, folded, run, OPS };
})();
