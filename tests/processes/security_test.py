#!/usr/bin/env python3
"""Who gets into an encrypted run, who does not, and who is put out of it, with real processes and OpenSSL's own client.

usage: security_test.py ATOLL STORE [unittest arguments]
"""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from swarm_run import SwarmRun, established_to, wait_for  # noqa: E402

ATOLL = STORE = ""


def atoll(*words, code=0, **options):
    done = subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=60, check=False, **options)
    if done.returncode != code:
        raise AssertionError(f"atoll {words}: {done.returncode}, not {code}: {done.stderr}")
    return done.stdout.strip() if code == 0 else done.stderr


def listening_ports(pid):
    """Of one process, on any address, from the kernel's own tables."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if match := re.fullmatch(r"socket:\[(\d+)\]", target):
            inodes.add(match[1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def tls_client(port, *words, say=""):
    """What OpenSSL's client says of the server."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *words], input=say, text=True,
                          capture_output=True, timeout=30, check=False)
    return done.stdout + done.stderr


class Secured(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-security-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def begin(self, names="ab", **settings):
        run = SwarmRun(ATOLL, STORE, self.folder / "run", {"swarm.replicas": len(names), **settings})
        self.addCleanup(run.kill_all)
        run.coordinate()
        for name in names:
            run.join(name)
        if names:
            run.wait_event("run_begun", step=0)
        return run

    def refused(self, run, word, name="x"):
        """Why nobody joins by that word."""
        run.join(name, address=word)
        code, _ = run.finish(name)
        self.assertNotEqual(code, 0)
        return run.tail(name)


class MembersTest(Secured):
    def test_a_revoked_member_is_cut_off_everywhere_and_the_others_go_on(self):
        run = self.begin("abc")
        run.wait_commits(1, after=0)
        begin = time.monotonic()
        atoll("revoke", "b", "--run", run.coordinated)
        lost = run.wait_event("island_lost", island="b")
        self.assertIn("revoked", lost["reason"])
        self.assertLess(time.monotonic() - begin, 10)  # Two seconds, on a machine that has them.
        port = int(run.wait_event("island_came", island="b")["address"].rsplit(":", 1)[1])
        wait_for(lambda: not established_to(port), "the other members to hang up")
        run.wait_commits(2)
        self.assertIn("no such invite", self.refused(run, self.invite_of(run, "b")))
        run.kill("b")

    def invite_of(self, run, name):
        """The one that it came by, which nobody has any more: a guess in its form."""
        word = atoll("invite", run.coordinated, "--address", run.address, "--name", name, "--json")
        invite = json.loads(word)
        atoll("invite", run.coordinated, "--withdraw", invite["id"])
        return invite["invite"]

    def test_invites_that_are_void_let_nobody_in(self):
        run = self.begin("")
        once = atoll("invite", run.coordinated, "--address", run.address)
        run.join("a", address=once)
        wait_for(lambda: (run.folder / "a" / "identity" / "certificate.pem").exists(), "a's certificate")
        self.assertIn("no such invite", self.refused(run, once))
        short = atoll("invite", run.coordinated, "--address", run.address, "--expires", "1s")
        time.sleep(2.1)
        self.assertIn("expired", self.refused(run, short, "y"))
        self.assertRegex(self.refused(run, once[:-3], "z"), "invite")
        other = self.folder / "other"
        theirs = atoll("create", other, "--address", run.address)
        self.assertIn("certificate is not taken", self.refused(run, theirs, "w"))

    def test_no_secret_is_seen_in_processes_logs_or_files(self):
        run = self.begin("")
        word = atoll("invite", run.coordinated, "--address", run.address)
        process = run.join("a", address=word)
        wait_for(lambda: (run.folder / "a" / "identity" / "certificate.pem").exists(), "a's certificate")
        command = pathlib.Path(f"/proc/{process.pid}/cmdline").read_text()
        self.assertNotIn("atoll1.", command)
        for path in run.folder.rglob("*"):
            if path.is_file():
                self.assertNotIn(word.encode(), path.read_bytes(), path)
        for key in run.folder.rglob("*key.pem"):
            self.assertEqual(key.stat().st_mode & 0o777, 0o600, key)

    def test_a_key_that_others_can_read_is_refused(self):
        run = self.begin("")
        run.join("a")
        wait_for(lambda: (run.folder / "a" / "identity" / "certificate.pem").exists(), "a's certificate")
        run.kill("a")
        (run.folder / "a" / "identity" / "key.pem").chmod(0o644)
        self.assertIn("chmod 600", self.refused(run, run.address, "a"))

    def test_a_restored_authority_knows_its_members(self):
        run = self.begin("")
        run.kill("coordinator")
        authority = run.coordinated / "authority"
        created = self.folder / "created"
        code = self.folder / "code"
        code.write_text("a long enough code\n")
        atoll("create", created, "--passphrase", f"@{code}")
        shutil.rmtree(authority)
        backup = created / "authority-backup"
        atoll("create", run.coordinated, "--restore", backup, "--passphrase", f"@{code}")
        self.assertEqual((authority / "authority.pem").read_bytes(),
                         (created / "authority" / "authority.pem").read_bytes())
        code.write_text("another code\n")
        again = self.folder / "again"
        self.assertIn("wrong passphrase",
                      atoll("create", again, "--restore", backup, "--passphrase", f"@{code}", code=1))
        run.coordinate()
        run.join("a")
        run.join("b")
        run.wait_event("run_begun", step=0)


class SocketsTest(Secured):
    def test_every_listening_socket_speaks_tls_13_alone_and_wants_a_certificate(self):
        run = self.begin("ab")
        ports = {}
        for name, process in run.processes.items():
            for port in listening_ports(process.pid):
                ports[port] = name
        http = {int(event.rsplit(":", 1)[1]) for event in re.findall(r"http://([\d.:]+)/status", run.log())}
        self.assertGreaterEqual(len(ports.keys() - http), 3)
        for port in ports.keys() - http:
            for version in ("-tls1", "-tls1_1", "-tls1_2"):
                self.assertNotIn("Cipher is TLS", tls_client(port, version), (ports[port], version))
            bare = tls_client(port, "-tls1_3", "-ign_eof")
            self.assertRegex(bare, "TLSv1.3", ports[port])
            self.assertRegex(bare, "certificate required", ports[port])
            with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = plain.recv(100)  # An alert of TLS at most.
                self.assertTrue(answer == b"" or answer[0] == 0x15, (ports[port], answer))
        run.wait_commits(1)

    def test_another_runs_member_is_turned_away(self):
        run = self.begin("")
        other = self.folder / "other"
        atoll("create", other)
        theirs = self.folder / "theirs"
        theirs.mkdir()
        for words in (("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", theirs / "key"),
                      ("req", "-new", "-x509", "-key", theirs / "key", "-subj", "/CN=a", "-out", theirs / "cert")):
            subprocess.run(["openssl", *words], check=True, capture_output=True)
        port = int(run.address.rsplit(":", 1)[1])
        said = tls_client(port, "-tls1_3", "-ign_eof", "-cert", theirs / "cert", "-key", theirs / "key", say="x\n")
        self.assertRegex(said, "alert (unknown ca|bad certificate|decrypt error|unsupported certificate)|unknown ca")

    def test_insecure_is_refused_where_a_run_was_created(self):
        run = self.folder / "ours"
        atoll("create", run)
        self.assertIn("--insecure", atoll("coordinate", "--run", run, "--insecure", code=2))


def curl(url, *words):
    """Status and body; 0 where there was no answer by HTTP."""
    done = subprocess.run(["curl", "--silent", "--max-time", "30", "--write-out", "\n%{http_code}", *map(str, words), url],
                          capture_output=True, text=True, check=False)
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body


class RelayTest(Secured):
    """One relay of several runs, which have a coordinator each."""

    def test_it_serves_all_runs_that_it_was_given_and_comes_back_to_all(self):
        ours, theirs = (SwarmRun(ATOLL, STORE, self.folder / name) for name in ("ours", "theirs"))
        words = []
        for run in (ours, theirs):
            self.addCleanup(run.kill_all)
            run.coordinate()
            word = self.folder / f"{run.folder.name}.txt"
            word.write_text(atoll("invite", run.coordinated, "--address", run.address, "--role", "relay"))
            words.append(f"@{word}")
        folder = self.folder / "meeting"
        port = self.relay(words[0], "--run", folder)
        self.came(port, ours)
        self.kill(self.process)
        port = self.relay(words[1], "--run", folder)  # One more, beside that of the folder.
        self.came(port, ours, theirs)
        marks = {run: run.mark() for run in (ours, theirs)}
        atoll("revoke", "meeting", "--run", ours.coordinated)
        ours.wait_event("relay_lost", after=marks[ours], relay="meeting", reason=re.compile("revoked"))
        self.kill(self.process)
        port = self.relay("--run", folder)
        self.came(port, theirs, after=marks[theirs])
        self.assertFalse(ours.events().find("relay_came", after=marks[ours]))
        self.assertRegex(self.log(), r"\[[0-9a-f]{16}\] .*revoked")

    def test_invites_that_are_none_of_a_relay_are_refused(self):
        ours = self.folder / "ours"
        invite = atoll("create", ours, "--address", "127.0.0.1:9")
        self.assertIn("of its own", atoll("relay", invite, "--run", self.folder / "meeting", code=2))
        twice = [atoll("invite", ours, "--address", "127.0.0.1:9", "--role", "relay") for _ in range(2)]
        self.assertIn("to one run", atoll("relay", *twice, "--run", self.folder / "meeting", code=2))
        self.assertIn("of no relay", atoll("relay", "--run", self.folder / "meeting", code=2))

    def relay(self, *words):
        """In the place of the one before; its port, once a coordinator has taken it."""
        out = self.folder / "relay.out"
        with open(self.folder / "relay.log", "ab") as log, open(out, "wb") as stdout:
            self.process = subprocess.Popen([ATOLL, "relay", *map(str, words), "--listen", "127.0.0.1:0"], stdout=stdout, stderr=log)
        self.addCleanup(self.kill, self.process)
        wait_for(lambda: out.read_text().endswith("\n") or self.process.poll() is not None, "the relay's address")
        return int(out.read_text().rsplit(":", 1)[1])

    @staticmethod
    def kill(process):
        process.kill()
        process.wait()

    def log(self):
        return (self.folder / "relay.log").read_text()

    def came(self, port, *runs, after=0):
        for run in runs:
            run.wait_event("relay_came", after=after, relay="meeting", address=f"127.0.0.1:{port}")


class ReadersTest(Secured):
    """A coordinator that is asked over HTTPS, by curl and by `atoll status`."""

    def setUp(self):
        super().setUp()
        self.run_ = SwarmRun(ATOLL, STORE, self.folder / "run", {"swarm.replicas": 1})
        self.addCleanup(self.run_.kill_all)
        self.run_.coordinate("--https", "127.0.0.1:0", "--https-name", "ours.example.org")
        log = wait_for(lambda: re.search(r"https://127\.0\.0\.1:(\d+)/status", self.run_.log()), "the address for readers")
        self.port = int(log[1])
        self.address = f"127.0.0.1:{self.port}"
        self.created = self.run_.coordinated
        self.authority = self.created / "authority" / "authority.pem"

    def token(self, *words):
        made = json.loads(atoll("invite", self.created, "--role", "reader", "--token", "--json", *words))
        (self.folder / "token").write_text(made["token"] + "\n")
        return made

    def curl(self, path="/status", *words, token=None, host="127.0.0.1", scheme="https"):
        more = ["--header", f"Authorization: Bearer {token}"] if token else []
        return curl(f"{scheme}://{host}:{self.port}{path}", "--cacert", self.authority,
                    "--resolve", f"ours.example.org:{self.port}:127.0.0.1",
                    "--resolve", f"theirs.example.org:{self.port}:127.0.0.1", *more, *words)

    def test_a_token_reads_until_it_is_withdrawn_and_nothing_else_does(self):
        made = self.token()
        token = made["token"]
        code, body = self.curl(token=token)
        self.assertEqual(code, 200)
        self.assertEqual(json.loads(body)["wanted"], 1)
        self.assertEqual(self.curl("/metrics", token=token)[0], 200)
        self.assertEqual(self.curl(token=token, host="ours.example.org")[0], 200)
        self.assertEqual(self.curl(token=token, host="theirs.example.org")[0], 0)
        self.assertEqual(self.curl("/status", "--user", f"somebody:{token}")[0], 200)
        code, asked = self.curl("/status", "--include")
        self.assertEqual(code, 401)
        self.assertIn('WWW-Authenticate: Basic realm="atoll"', asked)
        self.assertNotIn("islands", asked)
        self.assertEqual(self.curl(token=token[:-1] + "_")[0], 401)
        self.assertEqual(self.curl("/nowhere", token=token)[0], 404)
        self.assertEqual(self.curl("/nowhere")[0], 401)
        self.assertEqual(self.curl(scheme="http", token=token)[0], 0)
        self.assertEqual(self.curl("/status", "--tlsv1.2", "--tls-max", "1.2", token=token)[0], 0)
        self.assertIn("a token of readers", atoll("invite", self.created, "--list"))
        atoll("invite", self.created, "--withdraw", made["id"])
        self.assertEqual(self.curl(token=token)[0], 401)
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != "token":
                self.assertNotIn(token.encode(), path.read_bytes(), path)

    def test_who_guesses_is_held_back_and_told_of(self):
        codes = [self.curl(token="a" * 22)[0] for _ in range(8)]
        self.assertEqual(codes[:5], [401] * 5)
        self.assertEqual(codes[-1], 429)
        self.run_.wait_event("readers_refused", address="127.0.0.1")

    def test_members_read_by_their_certificates_until_they_are_revoked(self):
        self.run_.join("a")
        identity = self.run_.folder / "a" / "identity"
        wait_for((identity / "certificate.pem").exists, "a's certificate")
        mine = ["--cert", identity / "certificate.pem", "--key", identity / "key.pem"]
        self.assertEqual(self.curl("/status", *mine)[0], 200)
        shown = atoll("status", f"https://{self.address}", "--run", self.run_.folder / "a", "--json")
        self.assertIn("islands", shown)
        atoll("revoke", "a", "--run", self.created)
        wait_for(lambda: self.curl("/status", *mine)[0] == 401, "the revoked member to be refused")
        self.assertIn("--token", atoll("status", f"https://{self.address}", "--run", self.run_.folder / "a", code=1))
        self.run_.kill("a")

    def test_atoll_status_asks_whom_it_can_know_and_nobody_else(self):
        made = self.token()
        token = ["--token", f"@{self.folder / 'token'}"]
        place = f"https://{self.address}"
        for pin in (["--authority", self.authority], ["--fingerprint", made["authority"]], ["--run", self.created]):
            self.assertIn("islands", atoll("status", place, *token, *pin, "--json"), pin)
            self.assertIn("no such member", atoll("status", place, *pin, code=1))
        self.assertIn("0 of 1 islands", atoll("status", f"{place}/status", *token, "--run", self.created))
        self.assertIn("--authority", atoll("status", place, *token, code=2))
        self.assertIn("stdin", atoll("status", place, "--token", made["token"], "--run", self.created, code=2))
        self.assertIn("https", atoll("status", self.address, *token, "--run", self.created, code=2))
        other = self.folder / "other"
        atoll("create", other)
        self.assertIn("certificate is not taken", atoll("status", place, *token, "--run", other, code=1))
        self.assertIn("--fingerprint", atoll("status", place, *token, "--fingerprint", "12ab", code=2))

    def test_https_is_for_runs_that_were_created(self):
        said = atoll("coordinate", "--run", self.folder / "plain", "--https", "127.0.0.1:0", code=2)
        self.assertIn("atoll create", said)
        other = self.folder / "other"
        atoll("create", other)
        self.assertIn("--https-name", atoll("coordinate", "--run", other, "--https-name", "a", code=2))
        said = atoll("coordinate", "--run", other, "--https", "127.0.0.1:0", "--https-name", "a,b", code=2)
        self.assertIn("no host's name", said)


if __name__ == "__main__":
    ATOLL, STORE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
