"""The documented reverse proxies' configurations are ones that these programs take."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.certificates import make_certificate

DOCS = Path(__file__).resolve().parents[3] / "docs" / "proxy"
LIMIT_S = 60.0


@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="nginx is not installed")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    certificate, key = make_certificate().write(tmp_path)
    text = (DOCS / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/certosa.example.org.pem", certificate)
    text = text.replace("/etc/ssl/private/certosa.example.org.key", key)
    whole = tmp_path / "nginx.conf"
    for body, status in ((text, 0), (text.replace("proxy_buffering off;", "proxy_buffering maybe;"), 1)):
        whole.write_text(
            f"pid {tmp_path}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{body}}}\n"
        )
        command = ["/usr/sbin/nginx", "-t", "-q", "-p", str(tmp_path), "-c", str(whole)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == status, done.stderr


@pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed")
def test_caddy_takes_its_configuration(tmp_path: Path) -> None:
    text = (DOCS / "Caddyfile").read_text()
    path = tmp_path / "Caddyfile"
    for body, ok in ((text, True), (text.replace("flush_interval -1", "flush_interval maybe"), False)):
        path.write_text(body)
        command = ["caddy", "adapt", "--config", str(path), "--adapter", "caddyfile"]
        env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env, cwd=tmp_path
        )
        assert (done.returncode == 0) is ok, done.stderr
