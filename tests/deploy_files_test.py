#!/usr/bin/env python3
"""What lies in deploy/: units, manifests, the container's recipe, and the Debian package. What a tool is missing for is skipped, and said.

usage: deploy_files_test.py BUILD_FOLDER [unittest arguments]    LONG=1 packs and starts the package
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.29"  # The oldest where podFailurePolicy and backoffLimitPerIndex are there unasked.
BUILD = None


def run(*words, **options):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=900, check=False, **options)


def needs(program):
    return unittest.skipIf(shutil.which(program) is None, f"{program} is not installed")


class UnitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-units-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.units = sorted((DEPLOY / "systemd").glob("*.service"))
        self.assertEqual(len(self.units), 3)
        for unit in self.units:  # The program need not be installed to look at them.
            (self.folder / unit.name).write_text(unit.read_text().replace("/usr/bin/atoll", "/bin/true"))

    @needs("systemd-analyze")
    def test_systemd_takes_them(self):
        for unit in self.units:
            instance = unit.name.replace("@", "@ours")
            done = run("systemd-analyze", "verify", "--man=no", f"./{instance}", cwd=self.folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), unit.name)

    @needs("systemd-analyze")
    def test_they_are_confined(self):
        for unit in self.units:
            done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", f"./{unit.name}", cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_matters_stands_there(self):
        for unit in self.units:
            lines = unit.read_text().split("\n")
            for line in ("User=atoll", "NoNewPrivileges=yes", "ProtectSystem=strict", "LimitCORE=0", "Restart=on-failure", "UMask=0077"):
                self.assertIn(line, lines, unit.name)
        island = (DEPLOY / "systemd" / "atoll-island@.service").read_text()
        self.assertIn("\nLoadCredential=invite:", island)
        self.assertIn("\nKillSignal=SIGTERM\n", island)

    def test_the_island_and_the_relay_come_by_the_invite_once(self):
        """The units' own lines, as systemd hands them to the shell, with a program that says what it was called with."""
        for kind, command in (("island", "join"), ("relay", "relay")):
            unit = (DEPLOY / "systemd" / f"atoll-{kind}@.service").read_text()
            script = re.search(rf"^ExecStart=/bin/sh -c '(.*)' atoll-{kind} \$ATOLL_OPTIONS$", unit, re.M)[1]
            script = script.replace("%i", "ours").replace("$$", "$").replace("/usr/bin/atoll", "echo")
            folder, said = self.folder / kind, []
            folder.mkdir()
            for _ in range(2):
                done = run("sh", "-c", script, f"atoll-{kind}", "--listen", "a b", cwd=folder,
                           env={**os.environ, "CREDENTIALS_DIRECTORY": "/creds"})
                said.append(done.stdout.strip())
                (folder / "identity").mkdir(exist_ok=True)
                (folder / "identity" / "certificate.pem").write_text("x")
            self.assertEqual(said, [f"{command} @/creds/invite --run /var/lib/atoll/{kind}/ours --listen a b",
                                    f"{command} --run /var/lib/atoll/{kind}/ours --listen a b"])


def pod_of(document):
    return document["spec"]["template"]["spec"]


class ManifestsTest(unittest.TestCase):
    def setUp(self):
        self.documents = [document for name in ("coordinator.yaml", "islands.yaml")
                          for document in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())]
        self.workloads = [document for document in self.documents if document["kind"] in ("StatefulSet", "Job")]
        self.assertEqual(len(self.workloads), 2)

    @unittest.skipIf(kubernetes_validate is None, "kubernetes-validate is not installed (scripts/setup.sh test does)")
    def test_they_fit_the_schemas(self):
        for version in (KUBERNETES, kubernetes_validate.latest_version()):
            for document in self.documents:
                with self.subTest(version=version, kind=document["kind"]):
                    kubernetes_validate.validate(document, version, strict=True)

    @unittest.skipIf(kubernetes_validate is None, "kubernetes-validate is not installed (scripts/setup.sh test does)")
    def test_a_mistake_does_not_fit(self):
        job = next(document for document in self.workloads if document["kind"] == "Job")
        job["spec"]["completionsMode"] = "Indexed"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, KUBERNETES, strict=True)

    @needs("kubectl")
    def test_kustomize_builds_them(self):
        done = run("kubectl", "kustomize", DEPLOY / "kubernetes")
        self.assertEqual(done.returncode, 0, done.stderr)
        kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
        self.assertEqual(sorted(kinds), ["ConfigMap", "Job", "PersistentVolumeClaim", "PersistentVolumeClaim", "Service", "StatefulSet"])
        self.assertNotIn("image: atoll\n", done.stdout)

    def test_pods_are_confined(self):
        for workload in self.workloads:
            pod = pod_of(workload)
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertGreater(pod["securityContext"]["runAsUser"], 0)
            self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            for container in pod["containers"] + pod.get("initContainers", []):
                own = container["securityContext"]
                self.assertTrue(own["readOnlyRootFilesystem"])
                self.assertFalse(own["allowPrivilegeEscalation"])
                self.assertEqual(own["capabilities"]["drop"], ["ALL"])
                self.assertIn("memory", container["resources"]["limits"])

    def test_no_secret_is_a_variable_or_a_word(self):
        for document in self.documents:
            self.assertNotEqual(document["kind"], "Secret", "a secret is made where it is used, never kept here")
        for workload in self.workloads:
            pod = pod_of(workload)
            mounted = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
            self.assertEqual(len(mounted), 1)
            for container in pod["containers"] + pod.get("initContainers", []):
                self.assertNotIn("envFrom", container)
                for variable in container.get("env", []):
                    self.assertNotIn("secretKeyRef", variable.get("valueFrom", {}))
                self.assertNotIn("atoll1.", str(container))

    def test_islands_are_an_indexed_job_that_survives_evictions(self):
        job = next(document for document in self.workloads if document["kind"] == "Job")
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(pod_of(job)["restartPolicy"], "Never")  # As podFailurePolicy asks.
        self.assertGreaterEqual(pod_of(job)["terminationGracePeriodSeconds"], 300)
        self.assertIn("island-$(ISLAND)", pod_of(job)["containers"][0]["args"])

    def test_a_pod_of_the_coordinator_that_is_told_to_end_stops_no_run(self):
        """Its script with a program that says which signals come to it: none but SIGKILL may, and it must be gone at once."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-pod-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "atoll").write_text(f"""#!/bin/sh
trap 'touch {folder}/asked' TERM INT HUP
echo begun
while :; do sleep 0.05; done
""")
        (folder / "atoll").chmod(0o755)
        workload = next(document for document in self.workloads if document["kind"] == "StatefulSet")
        command = pod_of(workload)["containers"][0]["command"]
        with subprocess.Popen(command, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, stdout=subprocess.PIPE,
                              text=True) as process:
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.terminate()
            process.stdout.read()  # Until the program has gone too.
            self.assertNotEqual(process.wait(60), 0)
        self.assertFalse((folder / "asked").exists())


class ContainerTest(unittest.TestCase):
    RECIPE = DEPLOY / "Containerfile"

    def instructions(self):
        text = re.sub(r"^#.*\n", "", self.RECIPE.read_text(), flags=re.M).replace("\\\n", " ")
        return [line.split(None, 1) for line in text.split("\n") if line.strip()]

    def test_the_recipe_as_it_is_written(self):
        stages = [words for name, words in self.instructions() if name == "FROM"]
        self.assertEqual(len(stages), 2)
        kinds = [name for name, _ in self.instructions()]
        self.assertLess(kinds.index("USER"), kinds.index("ENTRYPOINT"))
        self.assertIn(["USER", "10001:10001"], self.instructions())
        for name, words in self.instructions():
            if name == "COPY" and not words.startswith("--from"):
                self.assertTrue((ROOT / words.split()[0]).exists(), words)
        makefile = (ROOT / "Makefile").read_text()
        for _, words in (line for line in self.instructions() if line[0] == "RUN"):
            for target in re.findall(r"^make (\w+)", words):
                self.assertRegex(makefile, rf"(?m)^{target}:")

    @needs("apt-cache")
    def test_its_packages_exist(self):
        if run("apt-cache", "show", "bash").returncode != 0:
            self.skipTest("apt has no lists of packages here (apt-get update)")
        for name, words in self.instructions():
            for listed in re.findall(r"apt-get install -y --no-install-recommends ([^&]*)", words) if name == "RUN" else ():
                for package in listed.split():
                    if not package.startswith("/"):
                        self.assertEqual(run("apt-cache", "show", package).returncode, 0, package)

    @unittest.skipUnless(os.environ.get("LONG"), "LONG=1 builds the image")
    def test_the_image_starts(self):
        engine = next((name for name in ("podman", "docker") if shutil.which(name) and run(name, "info").returncode == 0), None)
        if engine is None:
            self.skipTest("no container engine answers here (podman info, docker info)")
        built = run(engine, "build", "-f", self.RECIPE, "-t", "atoll-test", ROOT)
        self.assertEqual(built.returncode, 0, built.stderr)
        said = run(engine, "run", "--rm", "--read-only", "--network=none", "atoll-test", "--version")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("atoll", said.stdout)


@unittest.skipUnless(os.environ.get("LONG"), "LONG=1 packs and starts the package")
class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.package = cls.folder / "atoll.deb"
        cls.root = cls.folder / "root"
        done = run("dpkg-deb", "-x", cls.package, cls.root)
        assert done.returncode == 0, done.stderr

    def test_it_says_what_it_needs(self):
        depends = run("dpkg-deb", "--field", self.package, "Depends").stdout
        for library in ("libc6", "libssl3", "libstdc++6", "libprotobuf32"):
            self.assertIn(library, depends)

    def test_it_has_all_and_nothing_of_the_build(self):
        for name in ("bin/atoll", "bin/atoll-torch", "share/man/man1/atoll.1.gz", "share/bash-completion/completions/atoll",
                     "share/doc/atoll/copyright", "lib/systemd/system/atoll-island@.service", "lib/sysusers.d/atoll.conf",
                     "lib/systemd/system/atoll-coordinator@.service", "lib/systemd/system/atoll-relay@.service", "lib/atoll/libtorch_cpu.so", "share/doc/atoll/LICENSE.LibTorch"):
            self.assertTrue((self.root / "usr" / name).is_file(), name)
        for line in run("dpkg-deb", "--contents", self.package).stdout.split("\n"):
            if line:
                self.assertEqual(line.split()[1], "root/root", line)
                self.assertRegex(line.split()[5], r"^\./(usr/.*)?$")

    def test_it_starts_from_where_it_was_put(self):
        environment = {"PATH": "/usr/bin:/bin"}
        loaded = run("ldd", self.root / "usr/bin/atoll-torch", env=environment).stdout
        self.assertNotIn("not found", loaded)
        self.assertRegex(loaded, rf"libtorch_cpu\.so => {re.escape(str(self.root))}/")
        for words in (["--version"], ["train", "--help"], ["generate", "--help"]):
            done = run(self.root / "usr/bin/atoll", *words, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_is_installed_and_its_user_makes_a_run(self):
        """By dpkg, into a view of this machine that is thrown away: an overlay in a mount namespace."""
        if os.geteuid() != 0 or run("unshare", "--mount", "true").returncode != 0:
            self.skipTest("it needs root and mount namespaces")
        view = self.folder / "view"
        for name in ("upper", "work", "merged"):
            (view / name).mkdir(parents=True)
        overlay = f"mount -t overlay overlay -o lowerdir=/,upperdir={view}/upper,workdir={view}/work {view}/merged"
        if run("unshare", "--mount", "sh", "-c", overlay).returncode != 0:
            self.skipTest("no overlay of / can be mounted here")
        shutil.copy(self.package, view / "upper")
        inside = "dpkg --force-depends -i /atoll.deb && runuser -u atoll -- /usr/bin/atoll create /var/lib/atoll/coordinator/ours " \
                 "--address ours.example.org:7070 && stat -c '%U %a' /var/lib/atoll/coordinator/ours/authority/authority-key.pem " \
                 "&& dpkg -r atoll"
        done = run("unshare", "--mount", "sh", "-ec", f"{overlay}; mount -t proc proc {view}/merged/proc; exec chroot {view}/merged "
                   f"sh -ec {shlex.quote(inside)}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\natoll 600\n", done.stdout)

    @needs("lintian")
    def test_lintian_finds_no_error_but_the_bundle(self):
        # Of the wheels' libraries the first two; zstd, which Debian 12's dpkg reads and its lintian does not know; no release yet.
        bundled = "embedded-library,unstripped-binary-or-object,malformed-deb-archive,no-changelog"
        done = run("lintian", "--fail-on", "error", "--suppress-tags", bundled, "--allow-root", self.package)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    result = unittest.main(verbosity=2, exit=False).result
    if result.wasSuccessful() and len(result.skipped) >= result.testsRun:
        sys.exit(77)  # ctest then says so.
    sys.exit(not result.wasSuccessful())
