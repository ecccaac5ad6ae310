"""Programs for Intel's GPUs, whose tests are skipped on others."""


def run_disable_unsupported(hook_mode: str) -> None:
    raise NotImplementedError(hook_mode)


run_resume_failure = run_cleanup_failure = run_free_failure = run_disable_unsupported
run_multi_device_sync = run_memory_margin_unsupported = run_disable_unsupported
