"""The LSTM over any algebra, run by torch's own kernel."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels.internals import scan
from zoo.layers.weight import Weight

RULES = ("fused", "gate")
GATES = 4
State = tuple[Tensor, Tensor]
Step = tuple[State, Tensor]
Given = tuple[Tensor, ...]


class Cell(nn.Module):
    """The weights of one layer in one direction: input -> 4 gates, hidden -> 4 gates, and one bias; gates in torch's order."""

    def __init__(self, algebra: Algebra, input_size: int, hidden_size: int, rules: str, inp_blocks: int, init: str) -> None:
        super().__init__()
        matrices, gates = (1, GATES) if rules == "fused" else (GATES, 1)

        def rows(size: int, blocks: int) -> nn.ModuleList:
            options: dict[str, Any] = {"blocks": (blocks, gates), "init": init}
            return nn.ModuleList(Weight(algebra, size, gates * hidden_size, **options) for _ in range(matrices))

        self.from_input, self.from_hidden = rows(input_size, inp_blocks), rows(hidden_size, 1)
        self.bias = nn.Parameter(torch.empty(GATES * hidden_size))
        self.reset_bias()

    def reset_bias(self) -> None:
        """Set the bias of the forget gate to one, so that a new cell remembers, and all others to zero."""
        with torch.no_grad():
            for gate, bias in enumerate(self.bias.chunk(GATES)):
                bias.fill_(gate == 1)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Assemble the real matrices, [4 hidden, input] and [4 hidden, hidden]."""
        return _stack(self.from_input), _stack(self.from_hidden)


class LSTM(nn.Module):
    r"""Long short-term memory whose matrices multiply over an algebra; batch first, otherwise as `torch.nn.LSTM`.

        i, f, g, o = W x_t + U h_{t-1} + b,    c_t = s(f) c_{t-1} + s(i) tanh(g),    h_t = s(o) tanh(c_t)

    with s the logistic function and entrywise products (Hochreiter and Schmidhuber 1997; over a learned algebra the PHM-LSTM of
    Zhang et al. 2021, section 4.1, whose formula omits s(o) and the last tanh). The real matrices are assembled once per call
    and handed to torch's kernel, so there is no loop over time in Python. Every gate is component-major by itself, and so are
    the two halves of a bidirectional layer's output.

    Args:
        algebra: The product, of dimension n.
        input_size: Real channels of x_t.
        hidden_size: Real channels of h_t in one direction; n need not divide either size.
        num_layers: Layers, one on top of the other.
        bidirectional: Whether a second set of weights reads from the end; the output then has 2 * hidden_size channels.
        dropout: Probability, on the output of every layer but the last.
        rules: ``fused`` has one `Weight` for x -> 4 gates and one for h -> 4 gates; ``gate`` has eight, one for each gate and
            side, each with a rule of its own where rules are learned (what the counts of Zhang et al., Table 1, say).
        inp_blocks: Vectors that lie side by side on the input axis.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.

    Raises:
        InputError: If an argument is out of range.

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
        if rules not in RULES:
            raise InputError(f"unknown rules '{rules}' of an LSTM: use {', '.join(RULES)}")
        if num_layers < 1:
            raise InputError(f"num_layers={num_layers}: an LSTM has one layer or more")
        if not 0 <= dropout <= 1:
            raise InputError(f"dropout={dropout}: a probability is between 0 and 1")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bidirectional, self.dropout, self.rules = bidirectional, dropout, rules
        directions = 1 + bidirectional
        sizes = [(input_size, inp_blocks)] + [(directions * hidden_size, directions)] * (num_layers - 1)
        self.cells = nn.ModuleList(
            Cell(algebra, size, hidden_size, rules, blocks, init) for size, blocks in sizes for _ in range(directions)
        )

    def reset_parameters(self) -> None:
        """Draw the weights anew; biases are zero, those of the forget gates one."""
        for module in self.modules():
            if isinstance(module, Weight):
                module.reset_parameters()
            elif isinstance(module, Cell):
                module.reset_bias()

    def forward(self, x: Tensor | PackedSequence, hx: State | None = None, lengths: Tensor | None = None) -> tuple[Any, State]:
        """Read sequences: [B, T, input_size], or the same packed, to [B, T, directions * hidden_size] and the last state.

        Args:
            x: The sequences, padded or packed; the output is as they are.
            hx: h and c to start from, each [num_layers * directions, B, hidden_size]; zeros by default.
            lengths: Steps of each padded sequence, int64 [B]; T by default. The output after them is zero.

        Raises:
            InputError: If x has not three axes, or not input_size channels.
        """
        data = x.data if isinstance(x, PackedSequence) else x
        if data.ndim != (2 if isinstance(x, PackedSequence) else 3) or data.shape[-1] != self.input_size:
            raise InputError(f"an LSTM of input_size={self.input_size} reads [B, T, {self.input_size}], not {list(data.shape)}")
        if isinstance(x, PackedSequence):
            return self._read_packed(x, hx)
        start = self._start(data, x.shape[0], hx)
        if torch.compiler.is_compiling():
            return self._read_by_scan(x, start, lengths)
        if lengths is not None:
            packed = pack_padded_sequence(x, lengths.cpu().clamp_min(1), batch_first=True, enforce_sorted=False)
            output, (h, c) = self._read_packed(packed, hx)
            y = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0]
            # Torch reads one step of every sequence; an empty one keeps its state.
            empty = (lengths < 1).to(x.device)[:, None]
            return y.masked_fill(empty.unsqueeze(-1), 0.0), (torch.where(empty, start[0], h), torch.where(empty, start[1], c))
        y, h, c = _copied(*torch.lstm(x, start, self._weights(x.is_cuda), *self._options(), True))
        return y, (h, c)

    def _options(self) -> tuple[bool, int, float, bool, bool]:
        """Return the options of torch's kernel; the first says that there are biases."""
        return True, self.num_layers, self.dropout, self.training, self.bidirectional

    def _read_packed(self, x: PackedSequence, hx: State | None) -> tuple[PackedSequence, State]:
        # Packing sorts by length: states go in in that order and come out in the caller's.
        start = _reorder(self._start(x.data, int(x.batch_sizes[0]), hx), None if hx is None else x.sorted_indices)
        y, h, c = _copied(*torch.lstm(x.data, x.batch_sizes, start, self._weights(x.data.is_cuda), *self._options()))
        return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), _reorder((h, c), x.unsorted_indices)

    def _read_by_scan(self, x: Tensor, start: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Read step by step, as `torch.compile` and `torch.export` can; the numbers are those of torch's kernel."""
        directions, last = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                cell: Any = self.cells[index]
                y, state = _scan(cell, x, (start[0][index], start[1][index]), lengths, backwards=bool(direction))
                outputs.append(y)
                last.append(state)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, (torch.stack([h for h, _ in last]), torch.stack([c for _, c in last]))

    def _start(self, data: Tensor, batch: int, hx: State | None) -> State:
        shape = len(self.cells), batch, self.hidden_size
        if hx is None:
            return data.new_zeros(shape), data.new_zeros(shape)
        for state in hx:
            if state.shape != shape:
                raise InputError(f"the state of this LSTM is two tensors {list(shape)}, not {list(state.shape)}")
        return hx

    def _weights(self, in_one_piece: bool) -> list[Tensor]:
        """Return what torch's kernel wants of every cell: two matrices and two biases, the second of them zero."""
        cells: list[Any] = list(self.cells)
        matrices = [matrix for cell in cells for matrix in cell.matrices()]
        biases = [bias for cell in cells for bias in (cell.bias, torch.zeros_like(cell.bias))]
        if in_one_piece:
            # Matrices before biases: cuDNN's own order. It would copy anything else at every call, and warn.
            parts = matrices + biases
            flat = torch.cat([part.flatten() for part in parts]).split([part.numel() for part in parts])
            views = [piece.view(part.shape) for piece, part in zip(flat, parts, strict=True)]
            matrices, biases = views[: len(matrices)], views[len(matrices) :]
        return [view for i in range(0, len(matrices), 2) for view in (*matrices[i : i + 2], *biases[i : i + 2])]

    def extra_repr(self) -> str:
        """Show the real sizes, and what is not the default, as torch does."""
        shown = {"num_layers": 1, "bidirectional": False, "dropout": 0.0, "rules": "fused"}
        changed = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])


def _copied(*outputs: Tensor) -> Given:
    """Copy outputs that have a gradient: on the CPU torch saves them for the backward pass, and writing to them would fail."""
    return tuple(y.clone() if y.requires_grad else y for y in outputs)


def _stack(weights: Iterable[Any]) -> Tensor:
    matrices = [weight.matrix() for weight in weights]
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def _scan(cell: Cell, x: Tensor, start: State, lengths: Tensor | None, backwards: bool) -> tuple[Tensor, State]:
    """Run a cell over time: [B, T, in] to [B, T, hidden] and the state after the last step of every sequence."""
    inp, hidden = cell.matrices()
    steps = torch.arange(x.shape[1], device=x.device)
    inside = None if lengths is None else steps < lengths[:, None].to(x.device)
    # Backwards, every sequence is read from its own end; padding stays where it is. Doing it twice restores the order.
    order = steps.flip(0).expand(x.shape[:2]) if inside is None else torch.where(inside, lengths[:, None] - 1 - steps, steps)  # type: ignore[index]
    gates = F.linear(x, inp, cell.bias)
    gates = (_in_order(gates, order) if backwards else gates).transpose(0, 1).contiguous()

    def step(state: State, given: Given) -> Step:
        h, c = state
        i, f, g, o = (given[0] + F.linear(h, hidden)).chunk(GATES, -1)
        cell_state = f.sigmoid() * c + i.sigmoid() * g.tanh()
        output = o.sigmoid() * cell_state.tanh()
        if inside is not None:
            output, cell_state = torch.where(given[1], output, h), torch.where(given[1], cell_state, c)
        # Sums with zero: nothing that scan returns may be one and the same tensor as something it keeps for the gradient.
        return (output, cell_state + 0), output + 0

    given = (gates,) if inside is None else (gates, inside.T.unsqueeze(-1).contiguous())
    (h, c), y = scan(step, (start[0].to(gates.dtype), start[1].to(gates.dtype)), given)
    y = y.transpose(0, 1)
    y = _in_order(y, order) if backwards else y
    return y if inside is None else y * inside.unsqueeze(-1), (h, c)


def _in_order(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order.unsqueeze(-1).expand(x.shape))


def _reorder(state: State, order: Tensor | None) -> State:
    return state if order is None else (state[0].index_select(1, order), state[1].index_select(1, order))
