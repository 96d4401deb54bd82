package launch

import (
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Agent is the program that runs inside sandboxes.
type Agent struct {
	// Path is the program's on this host; nothing changes it.
	Path string
	// Args come before those that an instance gives it.
	Args []string
	// Static says that it needs no library: it runs in any root.
	Static bool
	// Apart says that it can have commands run as another user than itself.
	Apart bool
}

// Capabilities are what an agent has to be given, as root of its namespace, to
// have commands run as another user; it gives some up and passes none on.
func Capabilities() []string {
	return []string{"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL"}
}

// Seal copies a program into a directory, named by its SHA-256 and read-only,
// so that an upgrade of the host does not change what sandboxes run, nor a
// removal break their start. args come before those that an instance gives it.
func Seal(dir, program string, args ...string) (Agent, error) {
	fail := func(err error) (Agent, error) { return Agent{}, fmt.Errorf("agent: %w", err) }
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	from, err := os.Open(program)
	if err != nil {
		return fail(err)
	}
	defer from.Close()
	temp, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(temp.Name())
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(temp, sum), from)
	if err := errors.Join(err, temp.Chmod(0o555), temp.Close()); err != nil {
		return fail(err)
	}
	path := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)))
	if err := os.Rename(temp.Name(), path); err != nil {
		return fail(err)
	}
	return Agent{Path: path, Args: args, Static: isStatic(path), Apart: isPure(path)}, nil
}

// isStatic tells whether a program names no interpreter that loads libraries.
func isStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// isPure tells whether a program was built without cgo, which has threads that
// Go cannot change the user of.
func isPure(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}

// Inside is the command line of the agent of one instance, as it is inside: it
// is told the SHA-256 of its secret alone. more comes behind that.
func (a Agent) Inside(program, cwd, listen, secret string, more ...string) []string {
	line := append([]string{program}, a.Args...)
	line = append(line, "--listen", listen, "--secret-sha256", Mark(secret), "--cwd", cwd)
	return append(line, more...)
}

// As are the arguments of an agent that is another user than the workload, which
// is uid and gid. bound is how many processes and threads both may have at once, 0
// is any number. The workload gets so many of them that some are left to the
// agent: a program of Go's that gets no thread ends. state is where inside the
// directory is that [MakeState] made.
func As(uid, gid int, bound int64, state string) []string {
	args := []string{"--user", fmt.Sprintf("%d:%d", uid, gid), "--state", state}
	if bound > 0 {
		args = append(args, "--user-processes", fmt.Sprint(bound-min(bound/4, agentThreads)))
	}
	return args
}

// agentThreads are more than an agent has at once, unless disks hang.
const agentThreads = 64

// Mark is the argument of an agent that no other instance's has.
func Mark(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// HandedURL is what a socket that the agent is handed is called. Nothing is
// there.
const HandedURL = "unix:///run/controld/agent.sock"

// Handed are the variables by which a process that will have the number pid is
// told of the sockets from descriptor 3 on, see sd_listen_fds(3).
func Handed(pid, sockets int) map[string]string {
	return map[string]string{"LISTEN_PID": fmt.Sprint(pid), "LISTEN_FDS": fmt.Sprint(sockets)}
}

// LastWords returns the end of what an instance logged.
func LastWords(dir string) string {
	f, err := os.Open(filepath.Join(dir, logName))
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > lastWords {
		f.Seek(-lastWords, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, lastWords))
	return string(text)
}

// Why says why a start failed: in the last words of the instance, where it had
// any.
func Why(dir string, err error) string {
	if words := strings.TrimSpace(LastWords(dir)); words != "" {
		return words
	}
	return err.Error()
}

// lastWords is how many bytes of a log are told.
const lastWords = 1024

// Log opens the file that takes what an agent and those who start it say. It is
// a file, not a pipe, since they may outlive this process.
func Log(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, logName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

const logName = "log"
