package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/controld/controld/integration/load/peer"
	"github.com/controld/controld/integration/load/worker"
)

// The references that are no Go programs of ours.
const (
	nginx = "nginx"
	sshd  = "sshd"
	iperf = "iperf3"
)

// packages are the Debian packages of commands.
var packages = map[string][]string{
	"nginx": {"nginx-light", "nginx"}, "iperf3": {"iperf3"}, "curl": {"curl"}, "sshd": {"openssh-server"},
	"scp": {"openssh-client"}, "sftp": {"openssh-client"}, "ssh-keygen": {"openssh-client"},
	"docker": {"docker.io"}, "dockerd": {"docker.io"}, "busybox": {"busybox-static"},
}

// command finds a command. With -full root installs what is missing.
func (b *bench) command(ctx context.Context, name string) (string, error) {
	if path, err := find(name); err == nil {
		return path, nil
	}
	if b.full && os.Geteuid() == 0 {
		for _, pkg := range packages[name] {
			if b.install(ctx, pkg) != nil {
				continue
			}
			if path, err := find(name); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%w: %s", errMissing, name)
}

func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// install installs a package of Debian without starting its service.
func (b *bench) install(ctx context.Context, pkg string) error {
	env := []string{"env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"}
	argv := append(env, "install", "-y", "-qq", "--no-install-recommends", pkg)
	if _, _, err := b.run(ctx, "", argv...); err == nil {
		return nil
	}
	if _, _, err := b.run(ctx, "", append(env, "update", "-qq")...); err != nil {
		return err
	}
	_, _, err := b.run(ctx, "", argv...)
	return err
}

// server returns a server that serves all cases, and starts it at first use.
func (b *bench) server(ctx context.Context, kind string) (*server, error) {
	if s := b.servers[kind]; s != nil {
		return s, nil
	}
	if err := b.refused[kind]; err != nil {
		return nil, err
	}
	start := map[string]func(context.Context) (*server, error){
		nginx: b.startNginx, sshd: b.startSSH, iperf: b.startIperf,
	}[kind]
	switch {
	case worker.IsControld(kind):
		start = func(ctx context.Context) (*server, error) { return b.daemon(ctx, kind) }
	case start == nil:
		start = func(context.Context) (*server, error) { return b.goPeer(kind) }
	}
	s, err := start(ctx)
	if err != nil {
		b.refused[kind] = err
		return nil, err
	}
	b.servers[kind] = s
	return s, nil
}

// listening starts a program that is to listen on a port of loopback.
func (b *bench) listening(ctx context.Context, port string, argv ...string) (*server, error) {
	p, err := b.start(filepath.Base(argv[0]), false, argv...)
	if err != nil {
		return nil, err
	}
	var n int
	fmt.Sscan(port, &n)
	entry := fmt.Sprintf(":%04X 00000000:0000 0A ", n) // listens, see proc(5)
	err = await(ctx, p, func() bool {
		table, _ := os.ReadFile("/proc/net/tcp")
		return strings.Contains(string(table), entry)
	})
	return &server{process: p, addr: "127.0.0.1:" + port}, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func (b *bench) startIperf(ctx context.Context) (*server, error) {
	path, err := b.command(ctx, "iperf3")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return b.listening(ctx, port, path, "-s", "-B", "127.0.0.1", "-p", port, "--logfile", filepath.Join(b.temp, "iperf3.log"))
}

const nginxConf = `worker_processes 1;
error_log stderr error;
pid %[1]s/nginx.pid;
daemon off;
%[4]s
events { worker_connections 64; }
http {
  access_log off;
  sendfile on;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server { listen 127.0.0.1:%[2]s; root %[3]s; }
}
`

func (b *bench) startNginx(ctx context.Context) (*server, error) {
	path, err := b.command(ctx, "nginx")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	conf := filepath.Join(b.temp, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, b.temp, port, b.shm, user), 0o600); err != nil {
		return nil, err
	}
	return b.listening(ctx, port, path, "-p", b.temp, "-e", "stderr", "-c", conf)
}

const sshdConf = `Port %[2]s
ListenAddress 127.0.0.1
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
`

// startSSH starts an sshd with keys of its own.
func (b *bench) startSSH(ctx context.Context) (*server, error) {
	for _, name := range []string{"ssh-keygen", "scp", "sftp"} {
		if _, err := b.command(ctx, name); err != nil {
			return nil, err
		}
	}
	path, err := b.command(ctx, "sshd")
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"host", "user"} {
		if _, _, err := b.run(ctx, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(b.temp, key)); err != nil {
			return nil, err
		}
	}
	if os.Geteuid() == 0 && os.Mkdir("/run/sshd", 0o755) == nil {
		b.cleanups = append(b.cleanups, func() { os.Remove("/run/sshd") })
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(b.temp, "sshd.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, sshdConf, b.temp, port), 0o600); err != nil {
		return nil, err
	}
	return b.listening(ctx, port, path, "-D", "-e", "-f", conf)
}

// describe prints what the numbers depend on.
func (b *bench) describe(ctx context.Context) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	b.logf("load: pid %d, Linux %s, %d CPUs, %s; %d rounds of %d bytes", os.Getpid(), strings.TrimSpace(string(release)),
		runtime.NumCPU(), runtime.Version(), b.rounds, b.size)
	b.logf("load: %s is %s, %s is %s", b.shm, fileSystem(b.shm), b.temp, fileSystem(b.temp))
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "google.golang.org/grpc" || m.Path == "github.com/sourcegraph/jsonrpc2" {
				b.logf("reference: %s %s", m.Path, m.Version)
			}
		}
	}
	for _, argv := range [][]string{{"nginx", "-v"}, {"iperf3", "--version"}, {"curl", "--version"}, {"ssh", "-V"}, {"cp", "--version"}, {"docker", "--version"}} {
		b.logf("reference: %s: %s", argv[0], versionOf(ctx, argv))
	}
}

func versionOf(ctx context.Context, argv []string) string {
	path, err := find(argv[0])
	if err != nil {
		return "not installed"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, argv[1:]...).CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// kinds of Go references, for the rows.
const (
	bare    = peer.Bare
	bareTLS = peer.BareTLS
	grpcGo  = peer.GRPC
	rpc2    = peer.RPC2
	netHTTP = peer.HTTP
)
