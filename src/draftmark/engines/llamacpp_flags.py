"""The flags of ``llama-server`` that a plan may set, and how a value is written on its command line.

Not here are the flags of llama.cpp's other tools, those that would hide the server or its log from draftmark,
and those that fetch models. Names and aliases are those of build 11549.
"""

from collections.abc import Mapping

from draftmark.errors import BadInput
from draftmark.schema import Scalar

_ON_OFF = """
fit
flash-attn fa
reasoning rea
"""
_VALUED = """
adaptive-decay
adaptive-target
alias a
batch-size b
cache-ram cram
cache-reuse
cache-type-k ctk
cache-type-v ctv
chat-template
chat-template-file
chat-template-kwargs
checkpoint-min-step
control-vector
control-vector-layer-range
control-vector-scaled
cpu-mask C
cpu-mask-batch Cb
cpu-range Cr
cpu-range-batch Crb
cpu-strict
cpu-strict-batch
ctx-checkpoints ctxcp swa-checkpoints
ctx-size c
device dev
fit-ctx fitc
fit-target fitt
gpu-layers n-gpu-layers ngl
host
image-max-tokens
image-min-tokens
keep
kv-unified-per-slot
lazy-mode lzm
load-mode lm
log-colors
log-prompts-dir
lookup-cache-dynamic lcd
lookup-cache-static lcs
lora
lora-scaled
main-gpu mg
media-path
min-p
mmproj mm
mmproj-device mmdev
model m
moe-cache-mib
n-cpu-ffn ncffn
n-cpu-moe ncmoe
numa
override-kv
override-tensor ot
parallel np
poll
poll-batch
port
predict n-predict n
prio
prio-batch
reasoning-budget
reasoning-budget-message
reasoning-effort
reasoning-format
repeat-penalty
rope-freq-base
rope-freq-scale
rope-scale
rope-scaling
rpc
samplers
seed s
sleep-idle-seconds
slot-prompt-similarity sps
slot-save-path
spec-draft-cpu-mask cpu-mask-draft
spec-draft-cpu-mask-batch cpu-mask-batch-draft
spec-draft-cpu-range cpu-range-draft
spec-draft-cpu-range-batch cpu-range-batch-draft
spec-draft-cpu-strict cpu-strict-draft
spec-draft-cpu-strict-batch cpu-strict-batch-draft
spec-draft-device device-draft devd
spec-draft-model model-draft md
spec-draft-n-cpu-moe spec-draft-ncmoe n-cpu-moe-draft ncmoed
spec-draft-n-max
spec-draft-n-min
spec-draft-ngl gpu-layers-draft n-gpu-layers-draft ngld
spec-draft-override-tensor override-tensor-draft otd
spec-draft-p-min draft-p-min
spec-draft-p-split draft-p-split
spec-draft-poll poll-draft
spec-draft-poll-batch poll-batch-draft
spec-draft-prio prio-draft
spec-draft-prio-batch prio-batch-draft
spec-draft-sampling
spec-draft-threads threads-draft td
spec-draft-threads-batch threads-batch-draft tbd
spec-draft-type-k cache-type-k-draft ctkd
spec-draft-type-v cache-type-v-draft ctvd
spec-ngram-map-k-min-hits
spec-ngram-map-k-size-m
spec-ngram-map-k-size-n
spec-ngram-map-k4v-min-hits
spec-ngram-map-k4v-size-m
spec-ngram-map-k4v-size-n
spec-ngram-mod-n-match
spec-ngram-mod-n-max
spec-ngram-mod-n-min
spec-ngram-simple-min-hits
spec-ngram-simple-size-m
spec-ngram-simple-size-n
spec-synth-len
spec-synth-rates
spec-type
split-mode sm
sse-ping-interval
temp temperature
tensor-split ts
threads t
threads-batch tb
threads-http
timeout to
top-k
top-n-sigma top-nsigma
top-p
typical typical-p
ubatch-size ub
verbosity log-verbosity lv
yarn-attn-factor
yarn-beta-fast
yarn-beta-slow
yarn-ext-factor
yarn-orig-ctx
"""
_SWITCHES = """
check-tensors
cpu-moe cmoe
ignore-eos
metrics
no-host
offline
props
reuse-port
spec-draft-cpu-moe cpu-moe-draft cmoed
swa-full
"""
_PAIRS = """
cache-idle-slots
cache-prompt
cont-batching cb
context-shift
jinja
kv-offload kvo
kv-unified kvu
log-prefix
log-timestamps
mmproj-auto
mmproj-offload
op-offload
perf
prefill-assistant
reasoning-preserve
repack
skip-chat-parsing
slots
spec-draft-backend-sampling
warmup
webui ui
"""
"""Switches that also have a ``no-`` form."""


def _lines(*tables: str) -> list[list[str]]:
    return [line.split() for table in tables for line in table.split("\n") if line]


_ON_OFF_NAMES = frozenset(names[0] for names in _lines(_ON_OFF))
_VALUED_NAMES = frozenset(names[0] for names in _lines(_VALUED))
_OPPOSITES = {f"no-{name}": f"no-{names[0]}" for names in _lines(_PAIRS) for name in names} | {
    "nkvo": "no-kv-offload",
    "nr": "no-repack",
    "nocb": "no-cont-batching",
}

NAMES = frozenset(names[0] for names in _lines(_ON_OFF, _VALUED, _SWITCHES, _PAIRS)) | set(
    _OPPOSITES.values()
)
"""Without the leading dashes."""
RENAMED: Mapping[str, str] = {
    alias: names[0] for names in _lines(_ON_OFF, _VALUED, _SWITCHES, _PAIRS) for alias in names[1:]
} | {alias: name for alias, name in _OPPOSITES.items() if alias != name}
"""Aliases, by the name that is used here."""


def spelled(flags: Mapping[str, Scalar | None]) -> dict[str, Scalar | None]:
    """The same flags with values as the server reads them; raises BadInput for a value of the wrong kind.

    YAML reads a bare ``on`` as true, so for a flag of ``on``, ``off`` and more, both mean the same.
    """
    return {name: _spelled(name, value) for name, value in flags.items()}


def _spelled(name: str, value: Scalar | None) -> Scalar | None:
    if name in _ON_OFF_NAMES:
        return ("on" if value else "off") if isinstance(value, bool) else value
    if name in _VALUED_NAMES and isinstance(value, bool):
        raise BadInput(f"args.{name}: --{name} needs a value, got {str(value).lower()}")
    if name in NAMES - _VALUED_NAMES and not isinstance(value, bool | None):
        raise BadInput(f"args.{name}: --{name} takes no value, got {value}", "write true or false")
    return value
