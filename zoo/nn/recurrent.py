"""The LSTM and the GRU over any algebra, computed by torch's kernels."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from zoo.algebras import Algebra
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice
from zoo.kernels.internals import autocast_dtype, scan
from zoo.nn.batching import opened_matrices
from zoo.nn.weight import Weight, one_line, shown

RULES = ("fused", "gate")
# Aliases, because torch.compile cannot trace a subscript in the annotation of a nested function.
Tensors = tuple[Tensor, ...]
Step = tuple[Tensors, Tensor]


class Cell(nn.Module):
    """The weights of one layer in one direction: input -> gates, hidden -> gates, and a bias; gates in torch's order.

    The bias, [gates * hidden], is the sum of torch's two biases, which differ only in the last gate of a GRU: there
    ``hidden_bias``, [hidden], is added to U h.
    """

    def __init__(self, owner: "Recurrent", algebra: Algebra, input_size: int, inp_blocks: int, init: str) -> None:
        super().__init__()
        gates, hidden = owner.gates, owner.hidden_size
        matrices, blocks = (1, gates) if owner.rules == "fused" else (gates, 1)

        def weights(size: int, inp_blocks: int) -> nn.ModuleList:
            options: dict[str, Any] = {"blocks": (inp_blocks, blocks), "init": init}
            return nn.ModuleList(Weight(algebra, size, blocks * hidden, **options) for _ in range(matrices))

        self.from_input, self.from_hidden = weights(input_size, inp_blocks), weights(hidden, 1)
        self.bias = nn.Parameter(torch.empty(gates * hidden)) if owner.bias else None
        self.hidden_bias = nn.Parameter(torch.empty(hidden)) if owner.bias and owner.has_hidden_bias else None
        self.gates, self.one_gate = gates, owner.one_gate
        self.reset_bias()

    def reset_bias(self) -> None:
        """Set the biases to zero, and that of the forget gate of an LSTM to one, so that a new cell preserves its state."""
        with torch.no_grad():
            if self.bias is not None:
                for gate, bias in enumerate(self.bias.chunk(self.gates)):
                    bias.fill_(gate == self.one_gate)
            if self.hidden_bias is not None:
                self.hidden_bias.zero_()

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Assemble the real matrices, [gates * hidden, input] and [gates * hidden, hidden]."""
        return _stack(self.from_input), _stack(self.from_hidden)

    def biases(self) -> Tensors:
        """Return torch's two biases, [gates * hidden] each, or none."""
        if self.bias is None:
            return ()
        second = torch.zeros_like(self.bias)
        if self.hidden_bias is not None:
            second = torch.cat([second[len(self.hidden_bias) :], self.hidden_bias])
        return self.bias, second


class Recurrent(nn.Module):
    """Base class of `LSTM` and `GRU`."""

    gates: ClassVar[int]
    num_states: ClassVar[int] = 1
    one_gate: ClassVar[int | None] = None  # the gate whose bias starts at one
    has_hidden_bias: ClassVar[bool] = False
    kernel: ClassVar[Callable[..., Tensors]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        algebra: Algebra | str,
        rules: str = "fused",
        inp_blocks: int = 1,
        init: str = "variance",
    ) -> None:
        super().__init__()
        algebra = named(algebra)
        check_choice("rules", rules, RULES)
        if num_layers < 1:
            raise InputError(f"num_layers={num_layers}: must be at least 1")
        if not 0 <= dropout <= 1:
            raise InputError(f"dropout={dropout}: must be between 0 and 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.rules = bidirectional, rules
        directions = 1 + bidirectional
        sizes = [(input_size, inp_blocks)] + [(directions * hidden_size, directions)] * (num_layers - 1)
        self.cells = nn.ModuleList(Cell(self, algebra, *size, init) for size in sizes for _ in range(directions))

    def reset_parameters(self) -> None:
        """Redraw the weights and reset the biases."""
        for module in self.modules():
            if isinstance(module, Weight):
                module.reset_parameters()
            elif isinstance(module, Cell):
                module.reset_bias()

    def forward(self, x: Tensor | PackedSequence, hx: Any = None, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """Process sequences: [T, B, input_size], or [B, T, input_size] if ``batch_first``, or packed ones.

        Returns the output, with directions * hidden_size channels, and the last state. Inputs [T, input_size] without the axis
        B are allowed; the states have none then.

        Args:
            hx: Initial state, [num_layers * directions, B, hidden_size]: h, or for an LSTM the pair h, c; zeros by default.
            lengths: Lengths of padded sequences, int64 [B], T by default. The output at padding is zero.
        """
        start = None if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
        y: Any
        if isinstance(x, PackedSequence):
            y, last = self._forward_packed(x, start)
        elif x.dim() == 2:
            start = None if start is None else tuple(state.unsqueeze(1) for state in start)
            y, last = self._forward_padded(x.unsqueeze(0), start, lengths)
            y, last = y.squeeze(0), tuple(state.squeeze(1) for state in last)
        elif self.batch_first:
            y, last = self._forward_padded(x, start, lengths)
        else:
            y, last = self._forward_padded(x.transpose(0, 1), start, lengths)
            y = y.transpose(0, 1)
        return y, last if len(last) > 1 else last[0]

    def _forward_padded(self, x: Tensor, hx: Tensors | None, lengths: Tensor | None) -> tuple[Tensor, Tensors]:
        start = self._start(x, x.shape[0], hx)
        if torch.compiler.is_compiling():
            return self._forward_scan(x, start, lengths)
        if lengths is None:
            y, *last = self._call_kernel(x, start)
            return y, tuple(last)
        packed = pack_padded_sequence(x, lengths.cpu().clamp_min(1), batch_first=True, enforce_sorted=False)
        output, states = self._forward_packed(packed, hx)
        y = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0]
        # Packed sequences have at least one step; restore the state of empty ones.
        empty = (lengths < 1).to(x.device)[:, None]
        restored = tuple(torch.where(empty, old, new) for old, new in zip(start, states, strict=True))
        return y.masked_fill(empty.unsqueeze(-1), 0.0), restored

    def _call_kernel(self, x: Tensor, start: Tensors, *batch_sizes: Tensor) -> Tensors:
        """Call torch's kernel on padded or, with ``batch_sizes``, packed sequences; return the output and the last state."""
        # Cast here: on CPUs without AVX-512, torch's LSTM fails if autocast casts its inputs.
        dtype = autocast_dtype(x.device) if x.device.type == "cpu" and x.dtype != torch.float64 else None
        if dtype is not None:
            x, start = x.to(dtype), tuple(state.to(dtype) for state in start)
        weights = [w if dtype is None else w.to(dtype) for w in self._weights(x.is_cuda)]
        hx: Any = start if len(start) > 1 else start[0]
        options = self.bias, self.num_layers, self.dropout, self.training, self.bidirectional
        args: list[Any] = [x, *batch_sizes, hx, weights, *options, *([] if batch_sizes else [True])]  # True is batch_first
        # Copy outputs with a gradient: on a CPU torch saves them for the backward pass, so in-place operations would fail.
        return tuple(y.clone() if y.requires_grad else y for y in type(self).kernel(*args))

    def _forward_packed(self, x: PackedSequence, hx: Tensors | None) -> tuple[PackedSequence, Tensors]:
        # Packed sequences are sorted by length: sort the initial state, and restore the order of the last one.
        start = _reorder(self._start(x.data, int(x.batch_sizes[0]), hx), x.sorted_indices)
        y, *last = self._call_kernel(x.data, start, x.batch_sizes)
        return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), _reorder(tuple(last), x.unsorted_indices)

    def _forward_scan(self, x: Tensor, start: Tensors, lengths: Tensor | None) -> tuple[Tensor, Tensors]:
        """Compute step by step, for `torch.compile` and `torch.export`."""
        directions, states = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                cell: Any = self.cells[index]
                first = tuple(state[index] for state in start)
                y, state = self._scan(cell, x, first, lengths, backwards=bool(direction))
                outputs.append(y)
                states.append(state)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(torch.stack(parts) for parts in zip(*states, strict=True))

    def _scan(self, cell: Cell, x: Tensor, start: Tensors, lengths: Tensor | None, backwards: bool) -> tuple[Tensor, Tensors]:
        """Run a cell over time: [B, T, in] to [B, T, hidden] and the state after the last step of every sequence."""
        inp, hidden = cell.matrices()
        steps = torch.arange(x.shape[1], device=x.device)
        inside = None if lengths is None else steps < lengths[:, None].to(x.device)
        # Reverse every sequence but not its padding; applied twice, this restores the order.
        order = steps.flip(0).expand(x.shape[:2])
        if inside is not None and lengths is not None:
            order = torch.where(inside, lengths[:, None] - 1 - steps, steps)
        gates = F.linear(x, inp, cell.bias)
        gates = (_gather_steps(gates, order) if backwards else gates).transpose(0, 1).contiguous()
        hidden_bias = cell.hidden_bias

        def step(state: Tensors, inputs: Tensors) -> Step:
            new = self.step(inputs[0], F.linear(state[0], hidden), hidden_bias, state)
            if inside is not None:
                new = tuple(torch.where(inputs[1], a, b) for a, b in zip(new, state, strict=True))
            # Adding zero creates new tensors: scan must not return tensors that it saves for the backward pass.
            return (new[0], *(part + 0 for part in new[1:])), new[0] + 0

        inputs = (gates,) if inside is None else (gates, inside.T.unsqueeze(-1).contiguous())
        last, y = scan(step, tuple(state.to(gates.dtype) for state in start), inputs)
        y = _gather_steps(y.transpose(0, 1), order) if backwards else y.transpose(0, 1)
        return y if inside is None else y * inside.unsqueeze(-1), last

    def step(self, from_input: Tensor, from_hidden: Tensor, hidden_bias: Tensor | None, state: Tensors) -> Tensors:
        """Return the state after one step, for W x + b and U h, [B, gates * hidden] each."""
        raise NotImplementedError

    def _start(self, x: Tensor, batch: int, hx: Tensors | None) -> Tensors:
        """Return the initial state, zeros by default, after checking it and the input: torch's kernels read out of bounds."""
        if x.shape[-1] != self.input_size or x.dim() > 3:
            raise InputError(f"an input of shape {list(x.shape)}: expected {self.input_size} channels", code="mismatch")
        shape = [len(self.cells), batch, self.hidden_size]
        if hx is None:
            return tuple(x.new_zeros(shape) for _ in range(self.num_states))
        shapes, expected = [list(state.shape) for state in hx], [shape] * self.num_states
        if shapes != expected:
            raise InputError(f"initial states of shapes {shapes}: expected {expected}", code="mismatch")
        return hx

    def _weights(self, contiguous: bool) -> list[Tensor]:
        """Return the weights for torch's kernel: for every cell two matrices and, with a bias, two biases."""
        cells: list[Any] = list(self.cells)
        with opened_matrices(self):  # in one launch on a GPU
            parts = [matrix for cell in cells for matrix in cell.matrices()]
        parts += [bias for cell in cells for bias in cell.biases()]
        if contiguous:
            # cuDNN expects one buffer with matrices before biases; otherwise it copies the weights at every call and warns.
            flat = torch.cat([part.flatten() for part in parts]).split([part.numel() for part in parts])
            parts = [piece.view(part.shape) for piece, part in zip(flat, parts, strict=True)]
        matrices, biases = parts[: 2 * len(cells)], parts[2 * len(cells) :]
        return [part for i in range(0, len(matrices), 2) for part in (*matrices[i : i + 2], *biases[i : i + 2])]

    def extra_repr(self) -> str:
        """Show the real sizes."""
        text = f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, bidirectional={self.bidirectional}"
        first: Any = self.cells[0]
        return f"{text}, batch_first={self.batch_first}{shown(first.from_input[0].algebra)}"

    def __repr__(self) -> str:
        """Show one line."""
        return one_line(self, "cells") or super().__repr__()


class LSTM(Recurrent):
    r"""LSTM over an algebra, with the arguments, gates and states of `torch.nn.LSTM`.

        i, f, g, o = W x_t + U h_{t-1} + b,    c_t = s(f) c_{t-1} + s(i) tanh(g),    h_t = s(o) tanh(c_t)

    with s the logistic function and entrywise products (Hochreiter and Schmidhuber 1997; over a learned algebra the PHM-LSTM of
    Zhang et al. 2021, section 4.1, whose formula omits s(o) and the last tanh). The real matrices are assembled once per call
    and passed to torch's kernel, so Python does not loop over time. Every gate and both halves of a bidirectional output are
    component-major. Unlike torch's, a layer has one bias, which is one for the forget gates and zero for the others at first.

    Args:
        input_size: Real channels of x_t.
        hidden_size: Real channels of h_t in one direction.
        bias: Whether to add the bias.
        batch_first: Whether inputs and outputs are [B, T, channels] instead of [T, B, channels].
        dropout: Dropout probability of the output of every layer but the last.
        bidirectional: Whether to add the reverse direction; the output then has 2 * hidden_size channels.
        algebra: The product or its spec.
        rules: ``fused`` has one `Weight` for x -> gates and one for h -> gates; ``gate`` has one for each gate and input, each
            with its own learned product (which gives the counts of Zhang et al., Table 1).
        inp_blocks: Number of vectors side by side on the input axis.

    Example:
        >>> y, (h, c) = LSTM(6, 5, batch_first=True, algebra=Algebra(torch.ones(2, 2, 2)))(torch.ones(3, 7, 6))
        >>> y.shape, h.shape
        (torch.Size([3, 7, 5]), torch.Size([1, 3, 5]))
    """

    gates = 4
    num_states = 2
    one_gate = 1
    kernel = staticmethod(torch.lstm)

    def step(self, from_input: Tensor, from_hidden: Tensor, hidden_bias: Tensor | None, state: Tensors) -> Tensors:
        """Return h and c after one step."""
        i, f, g, o = (from_input + from_hidden).chunk(self.gates, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRU(Recurrent):
    r"""GRU over an algebra, with the arguments, gates and states of `torch.nn.GRU`; see `LSTM` for the options.

        r, z = s(W x_t + U h_{t-1} + b),    n = tanh(W_n x_t + b_n + r (U_n h_{t-1} + b'_n)),    h_t = (1 - z) n + z h_{t-1}

    with entrywise products (Cho et al. 2014, in the form of torch and cuDNN). All biases are zero at first.

    Example:
        >>> y, h = GRU(6, 5, batch_first=True, algebra=Algebra(torch.ones(2, 2, 2)))(torch.ones(3, 7, 6))
        >>> y.shape, h.shape
        (torch.Size([3, 7, 5]), torch.Size([1, 3, 5]))
    """

    gates = 3
    has_hidden_bias = True
    kernel = staticmethod(torch.gru)

    def step(self, from_input: Tensor, from_hidden: Tensor, hidden_bias: Tensor | None, state: Tensors) -> Tensors:
        """Return h after one step."""
        width = self.hidden_size
        reset, update = (from_input[..., : 2 * width] + from_hidden[..., : 2 * width]).sigmoid().chunk(2, -1)
        hidden = from_hidden[..., 2 * width :]
        new = (from_input[..., 2 * width :] + reset * (hidden if hidden_bias is None else hidden + hidden_bias)).tanh()
        return (new + update * (state[0] - new),)


def _stack(weights: Iterable[Any]) -> Tensor:
    matrices = [weight() for weight in weights]
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def _gather_steps(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order.unsqueeze(-1).expand(x.shape))


def _reorder(state: Tensors, order: Tensor | None) -> Tensors:
    return state if order is None else tuple(part.index_select(1, order) for part in state)
