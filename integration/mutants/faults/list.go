package faults

import "slices"

// All returns the faults, each the smallest edit that makes it. What is after
// a slash in the name of a test is the part of it that is run.
func All() []Fault {
	return slices.Concat(pathFaults, fileFaults, streamFaults, tokenFaults, commandFaults, callFaults)
}

// pathFaults lead out of a scope, or to something else than was meant.
var pathFaults = []Fault{
	{"naive_path", Test{"./sandbox/local/root", "TestRace"}, []Edit{
		{"sandbox/local/root/place.go", "	if !p.beneath && !p.plain {", `	if p.beneath {
		top, _ := filepath.EvalSymlinks(procPath(p.dir))
		name := filepath.Join(top, rel)
		if at, err := filepath.EvalSymlinks(name); err != nil || !strings.HasPrefix(at+"/", top+"/") {
			return -1, ErrOutside
		}
		return openPath(unix.AT_FDCWD, name, flags)
	}
	if !p.plain {`},
		{"sandbox/local/root/place.go", `	"strconv"`, `	"path/filepath"
	"strconv"`},
	}},
	{"prefix_check", Test{"./sandbox/local", "TestScope"}, []Edit{
		{"sandbox/local/root/root.go", "	return &Place{root: r, dir: dir, rel: path, beneath: true}, nil", `	if top := filepath.Clean(scope); !strings.HasPrefix(filepath.Join(top, path)+"/", top+"/") {
		unix.Close(dir)
		return nil, ErrOutside
	}
	return &Place{root: r, dir: dir, rel: path}, nil`},
		{"sandbox/local/root/root.go", `	"strings"`, `	"path/filepath"
	"strings"`},
	}},
	{"follow_last_link", Test{"./sandbox/local", "TestRm"}, []Edit{
		{"sandbox/local/remove.go", "	if opts.Force && err == syscall.ENOTDIR {", `	if err == nil {
		if to, last, err := place.Target(); err == nil {
			unix.Close(dir)
			dir, name = to, last
		}
	}
	if opts.Force && err == syscall.ENOTDIR {`},
	}},
	{"write_without_parents", Test{"./sandbox/local", "TestWriteMakesParents"}, []Edit{
		{"sandbox/local/write.go", "	if sandbox.KindOf(err) != sandbox.KindNotFound {", "	if true {"},
	}},
	{"stream_with_parents", Test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/writestream/no_parents_are_made"}, []Edit{
		{"sandbox/local/write.go", "	if err != nil && opts.Parents &&", "	if err != nil &&"},
	}},
	{"stat_invents_mtime", Test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/stat/mtime_is_the_file's_own"}, []Edit{
		{"sandbox/local/meta.go", "		stat.ModTime = sandbox.Some(t)", "		stat.ModTime = sandbox.Some(time.Now())"},
	}},
}

// fileFaults show a file that is not whole, or lose one with the power.
var fileFaults = []Fault{
	{"inplace_write", Test{"./sandbox/local", "TestSinkVerdicts"}, []Edit{
		{"sandbox/local/sink.go", "	t, err := k.s.newTemp(k.dir)", `	t := &temp{s: k.s, dir: k.dir, forget: func() {}}
	fd, err := openAt(k.dir, k.name, unix.O_CREAT|unix.O_RDWR|unix.O_TRUNC, 0o644)
	t.file, t.name = os.NewFile(uintptr(fd), "temp"), k.name`},
		{"sandbox/local/sink.go", `	"io"`, `	"io"
	"os"`},
	}},
	{"rename_before_fsync", Test{"./integration", "TestWireSyncReachesTheDisk"}, []Edit{
		{"sandbox/local/sink.go", `	if k.opts.Sync {
		if err := k.temp.file.Sync(); err != nil {
			return mine, err
		}
	}
`, ""},
		{"sandbox/local/sink.go", "		err = k.syncDir()", `		var fd int
		if fd, err = openAt(k.dir, k.name, unix.O_RDONLY, 0); err == nil {
			unix.Fsync(fd)
			unix.Close(fd)
			err = k.syncDir()
		}`},
	}},
	{"no_dir_fsync", Test{"./integration", "TestWireSyncReachesTheDisk"}, []Edit{
		{"sandbox/local/sink.go", "	if err == nil && k.opts.Sync {", "	if false {"},
	}},
	{"temp_in_listing", Test{"./sandbox/sandboxtest", "TestLocal/cgroups_auto/writestream/nothing_shows_before_the_commit"}, []Edit{
		{"sandbox/local/temp.go", "	if !s.named.Load() {", "	if false {"},
	}},
}

// streamFaults take bytes that are not all there for a whole file.
var streamFaults = []Fault{
	{"close_is_success", Test{"./integration", "TestClientWantsTheVerdict"}, []Edit{
		{"adapter/source.go", "	whole := !s.length.Known", `	if true {
		return sandbox.ReadVerdict{}, nil
	}
	whole := !s.length.Known`},
		{"sandbox/stream.go", "	case s.left.Known && s.left.Value > 0:", "	case false:"},
	}},
	{"commit_without_count", Test{"./integration", "TestWireWriteFailures"}, []Edit{
		{"rpc/server/data.go", "	if got.Bytes != want.Value {", "	if false {"},
		{"sandbox/local/sink.go", "	if got != want {", "	if false {"},
	}},
	{"ok_before_inner_ok", Test{"./integration", "TestInnerRefusalReachesTheFirstHop"}, []Edit{
		{"adapter/sink.go", `	conn, err := k.s.open(k.ctx, k.l, t, ahead{}, nil)
	if err != nil {
		return err
	}
`, `	near, conn := net.Pipe()
	go func() {
		inner, err := k.s.open(k.ctx, k.l, t, ahead{}, nil)
		if err != nil {
			k.l.drop(t.ID)
			near.Close()
			return
		}
		io.Copy(inner, near)
	}()
`},
	}},
}

// tokenFaults let a token open more than one connection, or open one for ever.
var tokenFaults = []Fault{
	{"token_check_then_delete", Test{"./transfer", "TestTokenIsSingleUse"}, []Edit{
		{"transfer/table.go", `	tb.burn(t)
	if t.state != Minted {`, `	minted := t.state == Minted
	t.mu.Unlock()
	tb.mu.Unlock()
	runtime.Gosched()
	tb.mu.Lock()
	t.mu.Lock()
	tb.burn(t)
	if !minted {`},
		{"transfer/table.go", `	"errors"`, `	"errors"
	"runtime"`},
	}},
	{"token_reusable", Test{"./integration", "TestWireOneTokenOneConnection"}, []Edit{
		{"transfer/table.go", "	tb.burn(t)\n	if t.state", "	if t.state"},
		{"transfer/table.go", "	if t.state != Minted {", "	if t.state != Minted && t.state.Ended() {"},
	}},
	{"token_no_expiry", Test{"./transfer", "TestTokenExpires"}, []Edit{
		{"transfer/table.go", "	if t.state != Minted || time.Until(t.expires) > 0 {", "	if true {"},
	}},
}
