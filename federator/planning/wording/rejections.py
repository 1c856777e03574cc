"""Why a place is not for a job, in words, with the smallest change that would lift the reason."""

from federator.kernel.quantities import cents_up, format_bytes
from federator.kernel.quantities import format_duration as span
from federator.model import rejections as r
from federator.model.capacity import Market
from federator.model.whose import TEAM, Whose, in_words
from federator.planning.wording import gpus, moment, money
from federator.planning.wording.words import Words, phrase, word
from federator.wire.needs import DATA, FORMS, IMAGES, LAUNCHERS, OUTPUTS, TOGETHER

WITHOUT_TOGETHER = "leave placement.together out"


def data_words(brought: r.Brought | None) -> str:
    """`150 GB from eu-west: 20m and 12.00 USD`; empty where nothing is moved and nothing unknown."""
    if brought is None:
        return ""
    said = []
    if brought.moved_bytes:
        said.append(
            f"{format_bytes(brought.moved_bytes)} from {brought.sources}: {span(brought.seconds)} and {money(brought.usd)}"
        )
    if brought.unknown_count:
        more = f" and {brought.unknown_count - 1} more" if brought.unknown_count > 1 else ""
        said.append(f"what bringing {brought.unknown}{more} takes is not known, and counts as nothing")
    return "; ".join(said)


# -- the place itself ---------------------------------------------------------------------------------------------------


@word(r.Closed)
def _closed(why: r.Closed, _now: float) -> Words:
    text = why.said or "nothing new may start there now"
    if why.members > 1:
        text = f"none of its {why.members} members takes work; {why.member}: {text}"
    return Words(text, f"when {why.site} takes work again")


@word(r.OutsideHours)
def _outside_hours(why: r.OutsideHours, now: float) -> Words:
    if why.until_at is None:
        return Words(f"policy {why.policy} has it closed for longer than a week")
    until = moment(why.until_at, now)
    return Words(f"policy {why.policy} has it closed until {until}", f"wait until {until}")


@word(r.ClosesSoon)
def _closes_soon(why: r.ClosesSoon, now: float) -> Words:
    closes = f"policy {why.policy} closes it at {moment(why.closes_at, now)}"
    if why.late_s is None:
        return Words(f"{closes}: too soon to begin there", "wait until it opens again")
    late = f"{span(why.late_s)} before the job is expected to be done, which cannot save itself"
    return Words(f"{closes}, {late}", "write checkpoint, or a shorter estimate")


@word(r.OfferAvoided)
def _offer_avoided(why: r.OfferAvoided, now: float) -> Words:
    until = moment(why.until_at, now)
    said = why.said or "its last launch failed"
    return Words(f"{said}; it is not tried again before {until}", f"wait until {until}")


phrase(
    r.HomeAway,
    "nothing is rented while site {sites:list}, away for a moment, may come back",
    "wait a moment",
)
phrase(
    r.RentingPaused, "renting is paused for the whole federation", "an operator runs `federator burst resume`"
)


# -- where the job may run ----------------------------------------------------------------------------------------------


phrase(
    r.SavedAt,
    "what the job has saved is at {site}, where it goes on",
    "when {site} has room, or is declared dead because it is gone for good",
)
phrase(r.OtherSites, "the job may run only at {sites:list}", "add {site} to placement.sites")
phrase(r.SiteExcluded, "the job excludes {site}", "remove {site} from placement.not_sites")
phrase(
    r.SiteRefused,
    "{site} has evicted or repeatedly refused it; it is not tried again before {until_at:moment}",
    "wait until {until_at:moment}",
)
phrase(
    r.OtherKinds,
    "the job may run only at sites of kind {kinds:or}; this one is {site_kind}",
    "add {site_kind} to placement.kinds",
)
phrase(
    r.LabelsMissing,
    "the job asks for a site with {labels:list}",
    "remove {labels:list} from placement.labels, or label {site} so",
)


@word(r.LendsToOthers)
def _lends_to_others(why: r.LendsToOthers, _now: float) -> Words:
    lifts = (
        f"submit to {why.usable}" if why.usable else "",
        _by_team(why.lends_to, why.owner),
        f"ask {why.site} to lend to {why.queue}",
    )
    whose = Whose(why.queue, why.owner, why.team).shown
    text = f"it lends only to {in_words(why.lends_to)}; the job is of {whose}"
    return Words(text, ", or ".join(filter(None, lifts)))


@word(r.Untrusted)
def _untrusted(why: r.Untrusted, _now: float) -> Words:
    ask = f"{why.site} isolates jobs (federator-agent check says what it lacks), or adds owner:{why.owner} to isolation.trusts"
    text = f"this site runs work without isolation and takes only that of {in_words(why.trusts)}"
    return Words(text, ", or ".join(filter(None, (_by_team(why.trusts, why.owner), ask))))


def _by_team(names: tuple[str, ...], owner: str) -> str:
    """What who is in several teams may do; empty: the site names no team."""
    teams = [name.removeprefix(TEAM) for name in names if name.startswith(TEAM)]
    return f"submit as team {' or '.join(teams)}, if {owner} is in it" if teams else ""


# -- what the job asks of it --------------------------------------------------------------------------------------------


@word(r.AbilityMissing)
def _ability_missing(why: r.AbilityMissing, _now: float) -> Words:
    known = {
        IMAGES: ("the job names an image, and no containers run there", "leave image out"),
        DATA: (
            "the job has inputs, or a checkpoint.uri, and it cannot bring data",
            f"an operator of {why.site} adds data to its site file",
        ),
        OUTPUTS: (
            "the job reads the outputs of another, which its agent does not bring",
            f"upgrade the agents of {why.site}, or hand the data on through a store that both jobs reach; sites of MultiKueue bring none",
        ),
        TOGETHER: ("its agent is too old for a job that says how its nodes lie", WITHOUT_TOGETHER),
        LAUNCHERS: (
            "its agent is too old for a job with a framework, or with success: first",
            f"upgrade the agents of {why.site}",
        ),
        FORMS: (
            "its agent is too old for a job that may run in several forms",
            f"upgrade the agents of {why.site}",
        ),
    }
    if why.ability in known:
        return Words(*known[why.ability])
    named = why.ability.replace(":", " ")
    lift = f"leave {named} out" if why.offered else "a site's operator adds secrets to its site file"
    return Words(f"it has no {named}", lift)


@word(r.Unfenced)
def _unfenced(why: r.Unfenced, _now: float) -> Words:
    text = (
        "whether it ends work that is cut off is known only once its agent has reported"
        if why.unknown
        else "nothing there ends work that is cut off when the agent itself is dead"
    )
    return Words(f"on_disconnect asks for stop_within; {text}", "write on_disconnect: keep")


@word(r.RunTooLong)
def _run_too_long(why: r.RunTooLong, _now: float) -> Words:
    said = "without a max_duration, it is forecast to run for" if why.forecast else "its max_duration is"
    most = span(why.longest_s)
    text = f"the site ends what runs there after {most}, and {said} {span(why.run_s)}"
    return Words(text, f"set max_duration to {most}")


@word(r.OtherModels)
def _other_models(why: r.OtherModels, _now: float) -> Words:
    has = f"it has {why.has}" if why.has else "it has no GPUs"
    return Words(f"the job asks for {' or '.join(why.models)}; {has}", f"allow {why.has}" if why.has else "")


phrase(
    r.GpuMemory,
    "the job asks for {asks_mib:mib} per GPU; it has {has_mib:mib}",
    "ask for {has_mib:mib} per GPU",
)
phrase(
    r.OtherParts,
    "its GPUs are cut into parts of {part:g}, and the job asks for {asks:gpus}",
    "ask for {part:gpus}",
)


@word(r.GpusShared)
def _gpus_shared(why: r.GpusShared, _now: float) -> Words:
    change = "ask for part of a GPU (0.5)" if why.part else ""
    return Words("its GPUs are shared, and the job asks for whole ones", change)


@word(r.GpusWhole)
def _gpus_whole(why: r.GpusWhole, _now: float) -> Words:
    change = "ask for a whole GPU" if why.gpus else ""
    return Words("the job asks for part of a GPU, and none there is shared", change)


phrase(
    r.NotOnOneHost,
    "its {nodes} nodes are to be on one host and ask for {gpus:gpus}, {cpus_milli:milli} CPUs and {memory_mib:mib}; none there has so much",
    WITHOUT_TOGETHER,
)
phrase(
    r.NotLabelled,
    "the job's nodes are to be in one {label}, and no label says which {label} its hosts are in",
    "label them {label}: …, or leave placement.together out",
)


@word(r.NoLicense)
def _no_license(why: r.NoLicense, _now: float) -> Words:
    if not why.most:
        return Words(
            f"no policy has licences {why.license} for work there",
            "run it without them, or add a policy of kind License",
        )
    return Words(
        f"the job asks for {why.asks} licences {why.license}, and there are {why.most} for work there",
        f"ask for {why.most}, or raise their number",
    )


@word(r.GpusPerNode)
def _gpus_per_node(why: r.GpusPerNode, _now: float) -> Words:
    change = f"ask for {gpus(why.has)} per node" if why.has else ""
    return Words(f"the job asks for {gpus(why.asks)} per node; a host there has {why.has:g}", change)


phrase(
    r.CpusPerNode,
    "the job asks for {asks_milli:milli} CPUs per node; a host there has {has_milli:milli}",
    "ask for {has_milli:milli} CPUs",
)
phrase(
    r.MemoryPerNode,
    "the job asks for {asks_mib:mib} of memory per node; a host there has {has_mib:mib}",
    "ask for {has_mib:mib}",
)


@word(r.GangTooLarge)
def _gang_too_large(why: r.GangTooLarge, _now: float) -> Words:
    gang = f"{why.holds} of the gang's {why.nodes} nodes"
    fewer = f"ask for {why.holds} node{'s' if why.holds != 1 else ''}"
    if why.leased:
        return Words(f"a machine that is rented already holds {gang}", fewer)
    if why.shut:
        names = why.member if why.shut == 1 else f"{why.member} and {why.shut - 1} more"
        text = f"its open members hold {gang} even empty; {why.member}: {why.said}"
        return Words(text, f"when {names} of {why.site} {'takes' if why.shut == 1 else 'take'} work again")
    apart = ", each on a host of its own" if why.apart else ""
    host = f"{gpus(why.host_gpus)} and {why.host_cpus_milli / 1000:g} CPUs"
    return Words(f"even empty it holds {gang}{apart}; a host there has {host}", fewer)


# -- policies and money -------------------------------------------------------------------------------------------------


@word(r.OtherMarket)
def _other_market(why: r.OtherMarket, _now: float) -> Words:
    is_spot = why.market == Market.SPOT.value
    it, asks = ("spot", "on-demand") if is_spot else ("on-demand", "spot")
    return Words(f"it is {it} capacity, and the job asks for {asks}", "set spot_policy to auto")


@word(r.Denied)
def _denied(why: r.Denied, _now: float) -> Words:
    said = f": {why.said}" if why.said else ""
    return Words(f"policy {why.policy} forbids it{said}", f"a platform team changes policy {why.policy}")


phrase(
    r.NoRightToRent,
    "its owner has no right to rent in queue {queue}",
    "a platform team gives that right in queue {queue}",
)
phrase(
    r.OnlyAdvises,
    "policy {policy} only advises, and rents nothing",
    "a platform team ends advisory in {policy}",
)
phrase(
    r.DataKept,
    "burst policy {policy} does not let its data leave",
    "a platform team adds the data to data_may_leave of {policy}",
)
phrase(
    r.NoBurstPolicy,
    "no burst policy lets queue {queue} rent there",
    "a platform team adds a BurstPolicy for {queue}",
)
phrase(r.PolicyOff, "burst policy {policy} is switched off", "a platform team sets another mode in {policy}")
phrase(r.PolicyHours, "burst policy {policy} is outside its hours", "wait for the hours of {policy}")


@word(r.PriceLimit)
def _price_limit(why: r.PriceLimit, _now: float) -> Words:
    text = f"it costs {money(why.price_usd_h)} per hour; policy {why.policy} admits at most {money(why.limit_usd_h)}"
    more = cents_up(why.price_usd_h - why.limit_usd_h)
    return Words(text, f"a platform team raises the price limit of {why.policy} by {money(more)}")


phrase(
    r.NoMaxDuration,
    "the job has no max_duration, so its worst cost is not bounded and nothing can be rented for it",
    "set max_duration ({enough_s:span} would do)",
)


@word(r.MaxCost)
def _max_cost(why: r.MaxCost, _now: float) -> Words:
    parts = []
    if why.rent_s is not None:
        rent = span(why.rent_s)
        parts.append(f"{rent} of {why.machines} machines" if why.machines > 1 else rent)
    if why.brought is not None and why.brought.usd:
        parts.append(data_words(why.brought))
    whose = f"policy {why.policy}" if why.policy else "the job's max_cost"
    text = f"it could cost {money(why.worst_usd)} in the worst case ({', '.join(parts)}); {whose} leaves {money(why.left_usd)}"
    lift = f"a higher budget in {why.policy}" if why.policy else "raise max_cost"
    more = money(cents_up(why.worst_usd - why.left_usd))
    shorter = "" if why.rent_s is None else ", or shorten max_duration"
    return Words(text, f"{lift} by {more}{shorter}")
