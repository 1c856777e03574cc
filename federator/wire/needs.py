"""What a job needs its site to have beside hardware: `image: pytorch/pytorch:2.4.0`, `secrets: [wandb]`.

Sites say by the same words what they have (`SiteReport.abilities`); one that lacks a word that a job needs is not for that job.
"""

import re
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import APART, ON_ONE_HOST, JobSpec
from federator.model.sites import SiteReport
from federator.wire import fields

MAX_SECRETS = 50
IMAGES = "images"
"""The ability to run a job in the image that it names."""
FORMS = "forms"
"""The ability to run a job in another of its forms than the first. Every agent that knows the word has it: of one that does not, the spec would be refused
for a field that it does not know, so such work goes past it until it is upgraded. What is rented gets an agent of the dispatcher's own time."""
TOGETHER = "together"
"""The ability to have all ranks of a gang on one host, or each on a host of its own."""
DATA = "data"
"""The ability to bring a job its inputs, and to take its checkpoints to `checkpoint.uri`: that of a Kubernetes site whose file says how, and of all others."""
LAUNCHERS = "launchers"
"""The ability to run a job with a `framework` or `groups`, and to end a gang with its rank 0. Of an agent that lacks it, the spec would be refused, as with `FORMS`."""
OUTPUTS = "outputs"
"""The ability to bring a job the outputs of others, from where the dispatcher keeps them."""
RENTED = (FORMS, TOGETHER, LAUNCHERS, DATA, OUTPUTS)
"""What machines have that the dispatcher rents."""
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")


def read_image(value: object, path: str) -> str:
    """The name of a container image. Raises `Invalid`."""
    word = fields.text(value, path, limit=500)
    if not _IMAGE.fullmatch(word):
        raise Invalid(
            f"{word[:80]!r} is not the name of an image",
            field=path,
            remedy="write for example pytorch/pytorch:2.4.0",
        )
    return word


Image = Annotated[
    str, fields.written(read_image, "pytorch/pytorch:2.4.0", pattern=f"^{_IMAGE.pattern}$", maxLength=500)
]
Secrets = Annotated[tuple[fields.Name, ...], fields.alone(MAX_SECRETS)]
"""Names of secrets; their values are with the sites alone."""


def needs_of(spec: JobSpec) -> tuple[str, ...]:
    """The words of a job's needs, sorted."""
    forms = (FORMS,) if spec.forms else ()
    together = (TOGETHER,) if spec.placement.together in (ON_ONE_HOST, APART) else ()
    launchers = (LAUNCHERS,) if spec.launch or spec.success else ()
    image = (IMAGES,) if spec.image is not msgspec.UNSET else ()
    carried = spec.inputs or (spec.checkpoint is not None and spec.checkpoint.uri)
    data = (DATA,) if carried else ()
    outputs = (OUTPUTS,) if spec.inputs_from else ()
    return (
        *forms,
        *together,
        *launchers,
        *image,
        *data,
        *outputs,
        *sorted(secret(name) for name in spec.secrets or ()),
    )


def abilities_of(report: SiteReport) -> tuple[str, ...]:
    """What a site says that it has. Agents from before the word `data` brought it everywhere but to pods."""
    if DATA in report.abilities or report.runtime == "kube":
        return report.abilities
    return (*report.abilities, DATA)


def secret(name: str) -> str:
    """The ability to give a job that secret."""
    return f"secret:{name}"
