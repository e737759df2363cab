"""The LSTM over any algebra, run by torch's own kernel."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.layers.weight import Weight

RULES = ("fused", "gate")
GATES = 4
State = tuple[Tensor, Tensor]


class Cell(nn.Module):
    """The weights of one layer in one direction: input -> 4 gates, hidden -> 4 gates, and one bias.

    The gates lie in torch's order: input, forget, candidate, output. See `LSTM` for the arguments.
    """

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

    Attributes:
        cells: The weights, one `Cell` per layer and direction, in that order. A cell has one bias, [4 * hidden_size].

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

    def forward(self, x: Tensor | PackedSequence, hx: State | None = None) -> tuple[Any, State]:
        """Read sequences: [B, T, input_size], or the same packed, to [B, T, directions * hidden_size] and the last state.

        Args:
            x: The sequences, padded or packed.
            hx: h and c to start from, each [num_layers * directions, B, hidden_size]; zeros by default.

        Returns:
            The output, packed if x is, and the last h and c of every layer and direction, shaped as in ``hx``.

        Raises:
            InputError: If x has not three axes, or not input_size channels.
        """
        data = x.data if isinstance(x, PackedSequence) else x
        if data.ndim != (2 if isinstance(x, PackedSequence) else 3) or data.shape[-1] != self.input_size:
            raise InputError(f"an LSTM of input_size={self.input_size} reads [B, T, {self.input_size}], not {list(data.shape)}")
        options = (True, self.num_layers, self.dropout, self.training, self.bidirectional)
        if not isinstance(x, PackedSequence):
            y, h, c = torch.lstm(x, self._start(data, len(x), hx), self._weights(), *options, True)
            return y, (h, c)
        # Packing sorts by length: states go in in that order and come out in the caller's.
        start = _reorder(self._start(data, int(x.batch_sizes[0]), hx), None if hx is None else x.sorted_indices)
        y, h, c = torch.lstm(data, x.batch_sizes, start, self._weights(), *options)
        return PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices), _reorder((h, c), x.unsorted_indices)

    def _start(self, data: Tensor, batch: int, hx: State | None) -> State:
        """The state before the first step."""
        shape = len(self.cells), batch, self.hidden_size
        if hx is None:
            return data.new_zeros(shape), data.new_zeros(shape)
        for state in hx:
            if state.shape != shape:
                raise InputError(f"the state of this LSTM is two tensors {list(shape)}, not {list(state.shape)}")
        return hx

    def _weights(self) -> list[Tensor]:
        """Assemble what torch's kernel wants of every cell: two matrices and two biases, the second of them zero."""
        cells: list[Any] = list(self.cells)
        matrices = [matrix for cell in cells for matrix in cell.matrices()]
        parts = matrices + [bias for cell in cells for bias in (cell.bias, torch.zeros_like(cell.bias))]
        # In one piece, matrices before biases: cuDNN's own order. It would copy anything else at every call, and warn.
        flat = torch.cat([part.flatten() for part in parts]).split([part.numel() for part in parts])
        views = [piece.view(part.shape) for piece, part in zip(flat, parts, strict=True)]
        biases = views[len(matrices) :]
        return [view for i in range(0, len(matrices), 2) for view in (*views[i : i + 2], *biases[i : i + 2])]

    def extra_repr(self) -> str:
        """Show the real sizes, and what is not the default, as torch does."""
        shown = {"num_layers": 1, "bidirectional": False, "dropout": 0.0, "rules": "fused"}
        changed = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])


def _stack(weights: Iterable[Any]) -> Tensor:
    """Put the real matrices of some weights below each other."""
    matrices = [weight() for weight in weights]
    return matrices[0] if len(matrices) == 1 else torch.cat(matrices)


def _reorder(state: State, order: Tensor | None) -> State:
    """Permute the batch axis of h and c."""
    return state if order is None else (state[0].index_select(1, order), state[1].index_select(1, order))
