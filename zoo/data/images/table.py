"""The table of published image sets: where each lies, how it is checked, what its labels are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published set of labelled images.

    Attributes:
        name: Name of the preset.
        summary: What it holds, for people.
        citation: Who published it.
        repository: The data set repository on the Hugging Face Hub.
        revision: The commit that is read.
        classes: The label names; label i is called `classes[i]`.
        md5: MD5 sum of its .npz archive, for MedMNIST.
        train_files: Names of the files of the binary version, for CIFAR.
        test_file: Name of its test file.
        label_bytes: Bytes of a label in it; the last one counts.
    """

    name: str
    summary: str
    citation: str
    repository: str
    revision: str
    classes: tuple[str, ...]
    md5: str = ""
    train_files: tuple[str, ...] = ()
    test_file: str = ""
    label_bytes: int = 1


def _medmnist(name: str, summary: str, md5: str, classes: str) -> Published:
    """Return an entry of MedMNIST v2 (28 x 28 pixels); names and sums are those of `medmnist/info.py` 2.1.0."""
    return Published(
        name=name,
        summary=f"{summary}. MedMNIST v2",
        citation="Yang et al. 2023",
        repository="albertvillanova/medmnist-v2",  # a mirror; MedMNIST's own files, held against the sums, are on Zenodo
        revision="0472595ab51916346dc4ad40f7b77551f2171403",
        classes=tuple(classes.split(" | ")),
        md5=md5,
    )


ORGANS = (
    "bladder | femur-left | femur-right | heart | "
    "kidney-left | kidney-right | liver | lung-left | lung-right | pancreas | spleen"
)
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

ENTRIES = (
    Published(
        name="cifar10",
        summary="CIFAR-10: 32 x 32 RGB photographs, 10 classes, 50,000 training and 10,000 test images",
        citation="Krizhevsky 2009",
        repository="uoft-cs/cifar10",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        train_files=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        test_file="test_batch.bin",
    ),
    Published(
        name="cifar100",
        summary="CIFAR-100: 32 x 32 RGB photographs, 100 classes (the fine labels) of 500 training and 100 test images",
        citation="Krizhevsky 2009",
        repository="uoft-cs/cifar100",
        revision="aadb3af77e9048adbea6b47c21a81e47dd092ae5",
        classes=tuple(CIFAR100_CLASSES.split()),
        train_files=("train.bin",),
        test_file="test.bin",
        label_bytes=2,
    ),
    _medmnist(
        "bloodmnist",
        "Blood cells under the microscope, 8 classes, RGB",
        "7053d0359d879ad8a5505303e11de1dc",
        "basophil | eosinophil | erythroblast | immature granulocytes(myelocytes, metamyelocytes and promyelocytes) | "
        "lymphocyte | monocyte | neutrophil | platelet",
    ),
    _medmnist(
        "breastmnist",
        "Breast ultrasound, 2 classes, grey",
        "750601b1f35ba3300ea97c75c52ff8f6",
        "malignant | normal, benign",
    ),
    _medmnist(
        "dermamnist",
        "Skin lesions under the dermatoscope, 7 classes, RGB",
        "0744692d530f8e62ec473284d019b0c7",
        "actinic keratoses and intraepithelial carcinoma | basal cell carcinoma | benign keratosis-like lesions | "
        "dermatofibroma | melanoma | melanocytic nevi | vascular lesions",
    ),
    _medmnist(
        "octmnist",
        "Retinal optical coherence tomography, 4 classes, grey",
        "c68d92d5b585d8d81f7112f81e2d0842",
        "choroidal neovascularization | diabetic macular edema | drusen | normal",
    ),
    _medmnist(
        "organamnist",
        "Abdominal CT, axial slices, 11 organs, grey",
        "866b832ed4eeba67bfb9edee1d5544e6",
        ORGANS,
    ),
    _medmnist(
        "organcmnist",
        "Abdominal CT, coronal slices, 11 organs, grey",
        "0afa5834fb105f7705a7d93372119a21",
        ORGANS,
    ),
    _medmnist(
        "organsmnist",
        "Abdominal CT, sagittal slices, 11 organs, grey",
        "e5c39f1af030238290b9557d9503af9d",
        ORGANS,
    ),
    _medmnist(
        "pathmnist",
        "Colon tissue, 9 classes, RGB",
        "a8b06965200029087d5bd730944a56c1",
        "adipose | background | debris | lymphocytes | mucus | smooth muscle | normal colon mucosa | "
        "cancer-associated stroma | colorectal adenocarcinoma epithelium",
    ),
    _medmnist(
        "pneumoniamnist",
        "Chest X-rays, normal or pneumonia, grey",
        "28209eda62fecd6e6a2d98b1501bb15f",
        "normal | pneumonia",
    ),
    _medmnist(
        "retinamnist",
        "Fundus photographs, 5 grades of diabetic retinopathy, RGB",
        "bd4c0672f1bba3e3a89f0e4e876791e4",
        "0 | 1 | 2 | 3 | 4",
    ),
    _medmnist(
        "tissuemnist",
        "Kidney cortex cells, 8 classes, grey",
        "ebe78ee8b05294063de985d821c1c34b",
        "Collecting Duct, Connecting Tubule | Distal Convoluted Tubule | Glomerular endothelial cells | "
        "Interstitial endothelial cells | Leukocytes | Podocytes | Proximal Tubule Segments | Thick Ascending Limb",
    ),
)

SETS = {entry.name: entry for entry in ENTRIES}
