"""What the papers print and this project has not measured, and why: one line for each."""

ABSENT = (
    (
        "Wang et al. 2020, Table 2: CR",
        "the data are not at hand",
    ),
    (
        "Wang et al. 2020, Table 2: FastText, LSTM and CNN with word2vec",
        "the vectors are not at hand; the rows here learn their words from nothing, so only their order can be compared",
    ),
    (
        "Wang et al. 2020, Table 2: MR, SUBJ, MPQA over ten folds; SST with phrases; its widths, sums, batch norm",
        "compute: its widths, sums and batch norm were run on whole sentences and one fold; phrases and ten folds are "
        "configured for the Transformer alone, and run with one seed",
    ),
    (
        "Wang et al. 2020, Table 3",
        "systems of other authors, quoted there",
    ),
    (
        "Wang et al. 2020, Table 5: attentional encoder-decoders; complex-vanilla",
        "quoted from other authors; complex-vanilla is configured and not run",
    ),
    (
        "Wang et al. 2020, Table 6: text8",
        "data and compute: tiny Shakespeare stands in, with a network of 4 small layers; the recurrent baselines are quoted",
    ),
    (
        "Tay et al. 2019, Table 1: SNLI, SciTail, MNLI, Tweets, Quora, Ubuntu",
        "the data are not at hand, but for SNLI's validation and test files, on which Q-Att and DeAtt were run",
    ),
    (
        "Tay et al. 2019, Table 3, and WMT English-German",
        "data and compute: of En-Vi 1,475 pairs are at hand in place of 133 thousand, and BLEU is about 1; En-Ro, En-Et and "
        "En-De are not at hand, and 44M weights are not for two cores",
    ),
    (
        "Tay et al. 2019, Table 4: 100,000 steps, Universal Transformers",
        "compute: 5,000 steps were run, one seed each; Universal Transformers are quoted there",
    ),
    (
        "Zhang et al. 2021, Table 1: MultiNLI, QNLI, DNLI, SciTail; SNLI as a whole",
        "the data are not at hand, but for SNLI's validation and test files and QNLI's validation file, on which it was run",
    ),
    (
        "Zhang et al. 2021, Table 2: seven translations",
        "data and compute: none of the seven is at hand as a whole; smaller networks on Multi30k stand in, with one seed",
    ),
    (
        "Mukhopadhyay et al. 2025, Figures 3 to 9: lottery tickets on CIFAR, MedMNIST and Shakespeare",
        "compute: [lottery tickets](lottery.md) has CIFAR-10, PneumoniaMNIST and Shakespeare at the size of two cores, with "
        "smaller networks, fewer images, epochs and rounds, other rates of pruning; CIFAR-100 and other sets of MedMNIST are "
        "not at hand; histograms of weights (Figures 4 and 6) were not drawn",
    ),
    (
        "Mukhopadhyay et al. 2025, Table 1: ViTs of 1.1M to 28.95M weights and nanoGPT of 10.65M and 2.79M, trained",
        "compute: its recipes need a GPU; a smaller ViT and nanoGPT's recipe for a CPU were run instead",
    ),
)
