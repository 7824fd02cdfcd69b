"""Sites over NVFlare: the coordinator's rounds are its controller, and a site's answers its executor.

Messages are the data of its tasks "announce" and "answer". NVFlare carries them under TLS and knows by its certificates
who sent them; a message must say the same. A job names the sites and what must hold, never a file of a site: each site
says for itself which images take part, by a component with the id "images", whose `opened(site, folder)` yields truth,
band, and what else `announce` and `answer` are given. This is the one file that needs NVFlare.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from ..calibration.calibration import Calibration
from .coordinator import Study, StudySettings, merge, open_study
from .messages import Message, message_of
from .site import announce, answer

_MESSAGE = "message"  # its bytes, in a task and its reply


class StudyController(Controller):
    """The coordinator, on the server: it writes calibration.safetensors into the folder of the run.

    sites     names of NVFlare's clients, in the order of the study
    settings  what must hold, and how: `StudySettings.state()`
    """

    def __init__(self, sites: list[str], settings: dict[str, Any]) -> None:
        super().__init__()
        self.sites = sites
        self.settings = settings

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    start_controller = stop_controller = process_result_of_unknown_task = _nothing  # late replies are not used

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """All rounds of a study."""
        announcements = self._ask("announce", b"", abort_signal, fl_ctx)
        study: Study | Calibration = open_study(announcements, StudySettings.from_state(self.settings))
        while isinstance(study, Study):
            self.log_info(fl_ctx, repr(study))
            study = merge(study, self._ask("answer", study.plan.to_bytes(), abort_signal, fl_ctx))
        folder = FilePath(fl_ctx.get_workspace().get_run_dir(fl_ctx.get_job_id()))
        study.save(folder / "calibration.safetensors")
        self.log_info(fl_ctx, study.guarantee)

    def _ask(self, name: str, data: bytes, abort_signal: Signal, fl_ctx: FLContext) -> list[Message]:
        replies: dict[str, Shareable] = {}

        def keep(client_task: Any, fl_ctx: FLContext) -> None:
            replies[client_task.client.name] = client_task.result

        task = Task(name, Shareable({_MESSAGE: data}), result_received_cb=keep)
        self.broadcast_and_wait(task, fl_ctx, self.sites, len(self.sites), abort_signal=abort_signal)
        out = []
        for site in self.sites:
            code = replies[site].get_return_code() if site in replies else "no reply"
            if code != ReturnCode.OK:
                raise RuntimeError(f"site {site!r} did not {name} ({code}); its log says why")
            message = message_of(replies[site][_MESSAGE], f"the message of site {site!r}")
            if message.text.get("site") != site:
                raise ValueError(f"site {site!r} sent a message of site {message.text.get('site')!r}; do not use it")
            out.append(message)
        return out


class SiteExecutor(Executor):
    """A site, on its own machine. An error ends the job, and its words stay in the log of the site."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Announce the images of this site, or answer a plan."""
        site = fl_ctx.get_identity_name()
        images = fl_ctx.get_engine().get_component("images")
        with images.opened(site, FilePath(fl_ctx.get_workspace().get_site_config_dir())) as ((truth, band), given):
            if task_name == "announce":
                message = announce(truth, band, site=site, **given)
            else:
                given = {name: x for name, x in given.items() if name != "unit_key"}
                message = answer(message_of(shareable[_MESSAGE], "the plan"), truth, band, site=site, **given)
        reply = make_reply(ReturnCode.OK)
        reply[_MESSAGE] = message.to_bytes()
        return reply
