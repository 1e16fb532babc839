import asyncio
import threading

import pytest

from quire.server.background import BackgroundThread

pytestmark = pytest.mark.timeout(20)


def test_work_is_done_on_a_thread_and_its_result_comes_to_the_event_loop() -> None:
    async def main() -> None:
        thread, loop = BackgroundThread("test", 2), asyncio.get_running_loop()
        done: list[object] = []
        names: list[str] = []

        def work() -> int:
            names.append(threading.current_thread().name)
            return 7

        def failing() -> int:
            raise ValueError("no")

        def finished(result: int | Exception) -> None:
            assert asyncio.get_running_loop() is loop
            done.append(result)

        assert thread.run(work, finished)
        assert thread.run(failing, finished)
        assert not thread.run(work, finished)  # two are the limit
        await thread.stop()
        assert done[0] == 7
        assert isinstance(done[1], ValueError)
        assert names[0].startswith("test")

    asyncio.run(main())


def test_it_stops_when_there_was_no_work() -> None:
    asyncio.run(BackgroundThread("test", 1).stop())
