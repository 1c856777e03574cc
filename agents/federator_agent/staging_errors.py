"""Why a placement cannot be prepared: whatever prepares it raises these, and the runtimes report them with the status they name."""

from federator.kernel.errors import FederatorError
from federator.model.placements import Cause, PlacementStatus


class StagingError(FederatorError):
    """It can never start here: `cause` says which part is at fault."""

    status = PlacementStatus.FAILED

    def __init__(self, cause: Cause, message: str, exit_code: int | None = None) -> None:
        self.cause = cause
        self.exit_code = exit_code
        super().__init__(message)


class StagingRefused(StagingError):
    """The site has no room for it after all, and nothing of it is left: the dispatcher looks for another place."""

    status = PlacementStatus.REFUSED

    def __init__(self, message: str) -> None:
        super().__init__(Cause.CANNOT, message)


class StagingLost(StagingError):
    """What was prepared has vanished, and whether it still comes cannot be known: it is over, and is not prepared again."""

    status = PlacementStatus.LOST

    def __init__(self, message: str, cause: Cause = Cause.NODE_LOST) -> None:
        super().__init__(cause, message)
