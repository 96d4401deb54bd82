package drivers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/docker"
)

// engineTimeout bounds the start of an engine; it takes two seconds.
const engineTimeout = 60 * time.Second

// dockerd starts a Docker engine of the test's own, without a bridge and
// without a rule in the machine's packet filter, and returns its socket.
func dockerd(t testing.TB) string {
	dir := engineDir(t)
	socket := filepath.Join(dir, "docker.sock")
	startEngine(t, dir, socket, exec.Command("dockerd", "-H", "unix://"+socket, "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--bridge=none",
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"))
	return socket
}

// podman starts Podman's socket with storage of the test's own. Podman and its
// runtime want to see one version of cgroups.
func podman(t testing.TB) string {
	dir := engineDir(t)
	socket := filepath.Join(dir, "podman.sock")
	conf := filepath.Join(dir, "containers.conf")
	text := "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c",
		`[ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; exec podman --root "$0/root" --runroot "$0/run" --tmpdir "$0/tmp" --runtime crun `+
			`--cgroup-manager cgroupfs --events-backend file system service --time=0 "unix://$1"`, dir, socket)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+conf)
	startEngine(t, dir, socket, cmd)
	return socket
}

// engineDir is a directory whose path is short enough for sockets below it.
func engineDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeEngine(t, dir) })
	return dir
}

// removeEngine removes an engine's files. It may have left mounts there, and
// what cleans up behind a container may still be at work.
func removeEngine(t testing.TB, dir string) {
	for deadline := time.Now().Add(engineTimeout); ; {
		exec.Command("sh", "-c", `awk -v d="$0/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | xargs -r umount -l`, dir).Run()
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Error(err)
			return
		}
	}
}

func startEngine(t testing.TB, dir, socket string, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir // an engine may write where it stands
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(engineTimeout):
			t.Errorf("%s does not end", cmd.Path)
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	deadline := time.After(engineTimeout)
	for ping(socket) != nil {
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		case <-deadline:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%v does not answer\n%s", cmd.Args, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ping asks an engine whether it is there.
func ping(socket string) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	answer, err := client.Get("http://engine/_ping")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

func newDocker(t testing.TB, socket, parent string) sandboxhost.Driver {
	t.Helper()
	d, err := docker.New(docker.Options{Engine: "unix://" + socket, CgroupParent: parent, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
