"""``zoo test`` and ``zoo validate``: measure a trained model again."""

import json
from dataclasses import fields

from zoo.cli.parser import check_names, make_parser, parse
from zoo.training.options import Decoding, Evaluate, build


def run(command: str, argv: list[str]) -> int:
    """Print the metrics of a run on its test or validation split."""
    stage = {"test": "test", "validate": "val"}[command]
    parser = make_parser(command, Evaluate, f"Measure a trained model on the {stage} split.")
    parser.add_argument("run", help="a run (runs/NAME) or model folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults({f"decoding.{field.name}": None for field in fields(Decoding)})  # to tell what was given
    values = parse(parser, argv)
    check_names(values)
    from zoo.checkpoint.card import number
    from zoo.inference import evaluate

    run, as_json = values.pop("run"), values.pop("json")
    given = {name: value for name, value in values.pop("decoding").items() if value is not None}
    metrics = evaluate(run, stage, **vars(build(Evaluate, values)) | {"decoding": given})
    if as_json:
        print(json.dumps(metrics, indent=2))
    else:
        print("\n".join(f"{stage} {name:<9} {number(value)}" for name, value in metrics.items()))
    return 0
