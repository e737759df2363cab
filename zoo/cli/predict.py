"""``zoo predict``: classify image files."""

import json

from zoo.cli.plain_parser import plain_parser


def run(command: str, argv: list[str]) -> int:
    """Print the label of every image, as tab-separated lines or as JSON lines."""
    parser = plain_parser(command, "Classify image files with a trained model.")
    parser.add_argument("run", help="a run (runs/NAME) or model folder")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image file")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    options = parser.parse_args(argv)
    from zoo.runs import predict

    for row in predict(options.run, options.images):
        print(json.dumps(row) if options.json else f"{row['file']}\t{row['label']}\t{row['probability']:.4f}", flush=True)
    return 0
