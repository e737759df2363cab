"""The exact wording of the most common messages; other tests check codes and values."""

import pytest

VIT = "fit --backbone vit --algebra quaternion"
MESSAGES = [
    ("fitt", "unknown command 'fitt': did you mean 'fit'? (see zoo --help)"),
    ("fit", "missing --backbone, --algebra (see zoo fit --help)"),
    ("fit --backbone vit", "missing --algebra (see zoo fit --help)"),
    (
        "fit --backbone vit --algebra quaternion(",
        "bad spec 'quaternion(': the last character is not ')'; expected name or name(key=value, ...)",
    ),
    (f"{VIT} --bacth-size 3", "unknown flag --bacth-size: did you mean --batch-size? (all flags: zoo fit --help)"),
    (f"{VIT} --lr 3", "unknown flag --lr: did you mean --optimizer.lr? (all flags: zoo fit --help)"),
    (f"{VIT} --max-epochs 3", "unknown flag --max-epochs: did you mean --trainer.max-epochs? (all flags: zoo fit --help)"),
    (
        f"{VIT} --schedule cosine",
        "--schedule is not a flag itself: use --schedule.name, --schedule.warmup, --schedule.floor",
    ),
    (f"{VIT} --batch-size x", "batch_size='x' must be a whole number or none"),
    (f"{VIT} --batch-size 2.5", "batch_size=2.5 must be a whole number or none"),
    (f"{VIT} --optimizer.lr fast", "optimizer.lr='fast' must be a number or none"),
    (f"{VIT} --batch-size", "argument --batch-size: expected one argument (see zoo fit --help)"),
    (f"{VIT} --print-config=yes", "argument --print-config: ignored explicit argument 'yes' (see zoo fit --help)"),
    (f"{VIT} stray", "unexpected argument 'stray' (see zoo fit --help)"),
    (f"{VIT} -c none.yaml", "cannot read the config 'none.yaml': No such file or directory"),
    (f"{VIT} -c bad.yaml", "unknown option 'backbne' in the config 'bad.yaml': did you mean 'backbone'?"),
    (f"{VIT} -c wrong.yaml", "the config 'wrong.yaml': batch_size='many' must be a whole number or none"),
    (f"{VIT} -c empty.yaml", "the config 'empty.yaml' is empty"),
    (f"{VIT} --resume none", "--resume none: not a run, none/config.yaml is missing"),
    (f"{VIT} --resume none --run-dir x", "--resume RUN resumes the run in its own folder: remove --run-dir"),
    ("list backbone", "unknown kind 'backbone': did you mean 'backbones'?"),
    ("list commands serve", "use zoo serve --help"),
    ("completion fish", "shell 'fish' is not supported: use bash or zsh"),
    ("test", "missing RUN (see zoo test --help)"),
    ("test runs/none", "there is no folder 'runs/none': use a run (runs/...) or a model folder"),
    ("test runs/none --jsno", "unknown flag --jsno: did you mean --json? (all flags: zoo test --help)"),
    ("generate runs/none --num-samples 0", "--num-samples 0: must be at least 1"),
    ("export runs/none", "missing --to: use --to FOLDER"),
    ("publish runs/none", "missing --to: use --to FOLDER or --to hf:OWNER/NAME"),
    ("info runs/none --scope ffn", "zoo info runs/none: the specs are those of the model, leave the flags out"),
    ("pull", "missing SOURCE (see zoo pull --help)"),
    ("push x", "missing TO (see zoo push --help)"),
    ("recover runs/none", "the run folder 'runs/none' does not exist"),
]


@pytest.mark.parametrize(("words", "message"), MESSAGES, ids=[words for words, _ in MESSAGES])
def test_message(call, tmp_path, words, message):
    (tmp_path / "bad.yaml").write_text("backbne: vit\n")
    (tmp_path / "wrong.yaml").write_text("batch_size: many\n")
    (tmp_path / "empty.yaml").write_text("")
    assert call(*words.split()) == (2, "", f"zoo: {message}\n")
