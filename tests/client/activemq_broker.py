"""A real ActiveMQ for tests: its jars come from Maven Central by the ordinary client, once."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "6.3.1"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.activemq</groupId><artifactId>activemq-broker</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.activemq</groupId><artifactId>activemq-kahadb-store</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

MAIN = """
import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.apache.activemq.store.kahadb.disk.journal.Journal;

public class Main {
    public static void main(String[] args) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("activemq");
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        broker.setDataDirectory(args[0]);
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(args[0], "kahadb"));
        store.setJournalDiskSyncStrategy(Journal.JournalDiskSyncStrategy.NEVER.name());
        broker.setPersistenceAdapter(store);
        TransportConnector connector = broker.addConnector("tcp://127.0.0.1:0");
        broker.start();
        System.out.println("PORT " + connector.getPublishableConnectURI().getPort());
        System.in.read();
        System.exit(0);
    }
}
"""


def reason_to_skip() -> str | None:
    """Why there can be no ActiveMQ here; None if there can."""
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    return f"ActiveMQ needs {', '.join(missing)}" if missing else None


@contextmanager
def activemq_broker(directory: Path) -> Iterator[str]:
    """Run ActiveMQ with its data in a directory; gives its URL."""
    jars = _jars(directory)
    (directory / "Main.java").write_text(MAIN)
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", directory, directory / "Main.java"], check=True, timeout=120)
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", f"{jars}/*:{directory}", "Main", directory / "data"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = next((line.split()[1] for line in process.stdout if line.startswith("PORT ")), None)
        assert port is not None, (directory / "log").read_text()
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _jars(directory: Path) -> Path:
    jars = Path(tempfile.gettempdir()) / f"quire-tests-activemq-{VERSION}"
    if not jars.is_dir():
        (directory / "pom.xml").write_text(POM)
        made = directory / "jars"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        subprocess.run(
            ["mvn", "-q", "-B", "-f", directory / "pom.xml", goal, f"-DoutputDirectory={made}"], check=True, timeout=600
        )
        shutil.copytree(made, jars, dirs_exist_ok=True)
    return jars
