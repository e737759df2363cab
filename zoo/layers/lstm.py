"""The LSTM over any algebra, computed by torch's kernel."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from zoo.algebras import Algebra
from zoo.errors import check_choice, check_rules
from zoo.kernels.internals import autocast_dtype, scan
from zoo.layers.weight import Weight

RULES = ("fused", "gate")
GATES = 4
# Aliases, because torch.compile cannot trace a subscript in the annotation of a nested function.
State = tuple[Tensor, Tensor]
Tensors = tuple[Tensor, ...]
Step = tuple[State, Tensor]


class Cell(nn.Module):
    """The weights of one layer in one direction: input -> 4 gates, hidden -> 4 gates, one bias; gates in torch's order."""

    def __init__(self, algebra: Algebra, input_size: int, hidden_size: int, rules: str, inp_blocks: int, init: str) -> None:
        super().__init__()
        matrices, gates = (1, GATES) if rules == "fused" else (GATES, 1)

        def weights(size: int, blocks: int) -> nn.ModuleList:
            options: dict[str, Any] = {"blocks": (blocks, gates), "init": init}
            return nn.ModuleList(Weight(algebra, size, gates * hidden_size, **options) for _ in range(matrices))

        self.from_input, self.from_hidden = weights(input_size, inp_blocks), weights(hidden_size, 1)
        self.bias = nn.Parameter(torch.empty(GATES * hidden_size))
        self.reset_bias()

    def reset_bias(self) -> None:
        """Set the bias of the forget gate to one, so that a new cell preserves its state, and all others to zero."""
        with torch.no_grad():
            for gate, bias in enumerate(self.bias.chunk(GATES)):
                bias.fill_(gate == 1)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Assemble the real matrices, [4 hidden, input] and [4 hidden, hidden]."""
        return _stack(self.from_input), _stack(self.from_hidden)


class LSTM(nn.Module):
    r"""LSTM over an algebra; batch first, otherwise like `torch.nn.LSTM`.

        i, f, g, o = W x_t + U h_{t-1} + b,    c_t = s(f) c_{t-1} + s(i) tanh(g),    h_t = s(o) tanh(c_t)

    with s the logistic function and entrywise products (Hochreiter and Schmidhuber 1997; over a learned algebra the PHM-LSTM of
    Zhang et al. 2021, section 4.1, whose formula omits s(o) and the last tanh). The real matrices are assembled once per call
    and passed to torch's kernel, so Python does not loop over time. Every gate and both halves of a bidirectional output are
    component-major.

    Args:
        input_size: Real channels of x_t.
        hidden_size: Real channels of h_t in one direction.
        bidirectional: Whether to add the reverse direction; the output then has 2 * hidden_size channels.
        dropout: Dropout probability of the output of every layer but the last.
        rules: ``fused`` has one `Weight` for x -> 4 gates and one for h -> 4 gates; ``gate`` has eight, one for each gate and
            input, each with its own learned product (which gives the counts of Zhang et al., Table 1).
        inp_blocks: Number of vectors side by side on the input axis.

    Example:
        >>> y, (h, c) = LSTM(Algebra(torch.ones(2, 2, 2)), 6, 5)(torch.ones(3, 7, 6))
        >>> y.shape, h.shape
        (torch.Size([3, 7, 5]), torch.Size([1, 3, 5]))
    """

    def __init__(
        self,
        algebra: Algebra,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        *,
        rules: str = "fused",
        inp_blocks: int = 1,
        init: str = "variance",
    ) -> None:
        super().__init__()
        check_choice("rules", rules, RULES)
        check_rules(
            (num_layers >= 1, f"num_layers={num_layers}: must be at least 1"),
            (0 <= dropout <= 1, f"dropout={dropout}: must be between 0 and 1"),
        )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bidirectional, self.dropout, self.rules = bidirectional, dropout, rules
        directions = 1 + bidirectional
        sizes = [(input_size, inp_blocks)] + [(directions * hidden_size, directions)] * (num_layers - 1)
        self.cells = nn.ModuleList(
            Cell(algebra, size, hidden_size, rules, blocks, init) for size, blocks in sizes for _ in range(directions)
        )

    def reset_parameters(self) -> None:
        """Redraw the weights and reset the biases: one for forget gates, zero for all others."""
        for module in self.modules():
            if isinstance(module, Weight):
                module.reset_parameters()
            elif isinstance(module, Cell):
                module.reset_bias()

    def forward(self, x: Tensor | PackedSequence, hx: State | None = None, lengths: Tensor | None = None) -> tuple[Any, State]:
        """Process sequences: [B, T, input_size] or packed ones, to [B, T, directions * hidden_size] and the last state.

        ``hx`` is the initial h and c, each [num_layers * directions, B, hidden_size], zeros by default; ``lengths`` are those
        of padded sequences, int64 [B], T by default. The output at padding is zero.
        """
        if isinstance(x, PackedSequence):
            return self._forward_packed(x, hx)
        start = self._zeros(x, x.shape[0]) if hx is None else hx
        if torch.compiler.is_compiling():
            return self._forward_scan(x, start, lengths)
        if lengths is not None:
            packed = pack_padded_sequence(x, lengths.cpu().clamp_min(1), batch_first=True, enforce_sorted=False)
            output, (h, c) = self._forward_packed(packed, hx)
            y = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0]
            # Packed sequences have at least one step; restore the state of empty ones.
            empty = (lengths < 1).to(x.device)[:, None]
            return y.masked_fill(empty.unsqueeze(-1), 0.0), (torch.where(empty, start[0], h), torch.where(empty, start[1], c))
        y, h, c = self._call_kernel(x, start)
        return y, (h, c)

    def _call_kernel(self, x: Tensor, start: State, *batch_sizes: Tensor) -> Tensors:
        """Call torch's kernel on padded or, with ``batch_sizes``, packed sequences; return the output, h and c."""
        # Cast here: on CPUs without AVX-512, torch's LSTM fails if autocast casts its inputs.
        dtype = autocast_dtype(x.device) if x.device.type == "cpu" and x.dtype != torch.float64 else None
        x, h, c, *weights = (t if dtype is None else t.to(dtype) for t in (x, *start, *self._weights(x.is_cuda)))
        options = True, self.num_layers, self.dropout, self.training, self.bidirectional  # has_biases first, batch_first last
        args: list[Any] = [x, *batch_sizes, (h, c), weights, *options, *([] if batch_sizes else [True])]
        # Copy outputs with a gradient: on a CPU torch saves them for the backward pass, so in-place operations would fail.
        return tuple(y.clone() if y.requires_grad else y for y in torch.lstm(*args))

    def _forward_packed(self, x: PackedSequence, hx: State | None) -> tuple[PackedSequence, State]:
        # Packed sequences are sorted by length: sort the initial state, and restore the order of the last one.
        start = self._zeros(x.data, int(x.batch_sizes[0])) if hx is None else _reorder(hx, x.sorted_indices)
        y, h, c = self._call_kernel(x.data, start, x.batch_sizes)
        return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), _reorder((h, c), x.unsorted_indices)

    def _forward_scan(self, x: Tensor, start: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Compute step by step, for `torch.compile` and `torch.export`."""
        directions, states = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                cell: Any = self.cells[index]
                y, state = _scan(cell, x, (start[0][index], start[1][index]), lengths, backwards=bool(direction))
                outputs.append(y)
                states.append(state)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, (torch.stack([h for h, _ in states]), torch.stack([c for _, c in states]))

    def _zeros(self, like: Tensor, batch: int) -> State:
        shape = len(self.cells), batch, self.hidden_size
        return like.new_zeros(shape), like.new_zeros(shape)

    def _weights(self, contiguous: bool) -> list[Tensor]:
        """Return the weights for torch's kernel: for every cell two matrices and two biases, the second bias zero."""
        cells: list[Any] = list(self.cells)
        parts = [matrix for cell in cells for matrix in cell.matrices()]
        parts += [bias for cell in cells for bias in (cell.bias, torch.zeros_like(cell.bias))]
        if contiguous:
            # cuDNN expects one buffer with matrices before biases; otherwise it copies the weights at every call and warns.
            flat = torch.cat([part.flatten() for part in parts]).split([part.numel() for part in parts])
            parts = [piece.view(part.shape) for piece, part in zip(flat, parts, strict=True)]
        half = len(parts) // 2
        return [part for i in range(0, half, 2) for part in (*parts[i : i + 2], *parts[half + i : half + i + 2])]

    def extra_repr(self) -> str:
        """Show the real sizes."""
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, bidirectional={self.bidirectional}"


def _stack(weights: Iterable[Any]) -> Tensor:
    matrices = [weight() for weight in weights]
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def _scan(cell: Cell, x: Tensor, start: State, lengths: Tensor | None, backwards: bool) -> tuple[Tensor, State]:
    """Run a cell over time: [B, T, in] to [B, T, hidden] and the state after the last step of every sequence."""
    inp, hidden = cell.matrices()
    steps = torch.arange(x.shape[1], device=x.device)
    inside = None if lengths is None else steps < lengths[:, None].to(x.device)
    # Reverse every sequence but not its padding; applied twice, this restores the order.
    order = steps.flip(0).expand(x.shape[:2]) if inside is None else torch.where(inside, lengths[:, None] - 1 - steps, steps)  # type: ignore[index]
    gates = F.linear(x, inp, cell.bias)
    gates = (_gather_steps(gates, order) if backwards else gates).transpose(0, 1).contiguous()

    def step(state: State, inputs: Tensors) -> Step:
        h, c = state
        i, f, g, o = (inputs[0] + F.linear(h, hidden)).chunk(GATES, -1)
        cell_state = f.sigmoid() * c + i.sigmoid() * g.tanh()
        output = o.sigmoid() * cell_state.tanh()
        if inside is not None:
            output, cell_state = torch.where(inputs[1], output, h), torch.where(inputs[1], cell_state, c)
        # Adding zero creates new tensors: scan must not return tensors that it saves for the backward pass.
        return (output, cell_state + 0), output + 0

    inputs = (gates,) if inside is None else (gates, inside.T.unsqueeze(-1).contiguous())
    (h, c), y = scan(step, (start[0].to(gates.dtype), start[1].to(gates.dtype)), inputs)
    y = _gather_steps(y.transpose(0, 1), order) if backwards else y.transpose(0, 1)
    return y if inside is None else y * inside.unsqueeze(-1), (h, c)


def _gather_steps(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order.unsqueeze(-1).expand(x.shape))


def _reorder(state: State, order: Tensor | None) -> State:
    return state if order is None else (state[0].index_select(1, order), state[1].index_select(1, order))
