package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// byName are the functions that find a file by its name alone, whatever leads
// there: what a client names must not get to one of them.
var byName = map[string]string{
	"os": " Open OpenFile Create CreateTemp MkdirTemp Stat Lstat ReadFile WriteFile ReadDir Remove RemoveAll Rename Mkdir MkdirAll " +
		"Chmod Chown Lchown Chtimes Link Symlink Readlink Truncate Chdir DirFS CopyFS OpenRoot OpenInRoot ",
	"filepath": " Walk WalkDir EvalSymlinks Glob ",
	"unix": " Open Creat Stat Lstat Statfs Access Rename Unlink Rmdir Mkdir Mknod Chmod Chown Lchown Link Symlink Readlink " +
		"Truncate Chdir Chroot Utime Utimes UtimesNano Getxattr Setxattr ",
	"syscall": " Open Creat Stat Lstat Statfs Access Rename Unlink Rmdir Mkdir Mknod Chmod Chown Lchown Link Symlink Readlink " +
		"Truncate Chdir Chroot Utime Utimes UtimesNano ",
}

// ownFiles are the functions of the rooms that see clients' paths which may use
// them, and why.
var ownFiles = map[string]map[string]string{
	"sandbox/local": {
		"New":          "the null device, and whether there is a /proc",
		"openJournal":  "a file of our own in the operator's directory, which is made",
		"bootID":       "a file of the kernel's",
		"temp":         "where a descriptor is, asked of /proc",
		"close":        "the journal's own file",
		"SweepOf":      "the operator's directory",
		"sweepJournal": "the journal's own file",
		"sweepTemp":    "a directory that had been opened; only our own temporary file is removed there",
		"awaken":       "the directory of the sandbox itself",
		"holdsCwd":     "the directory of the sandbox itself, compared by its inode",
		"link":         "a descriptor, by /proc/self/fd",
		"stamp":        "a descriptor, by /proc/self/fd",
		"RemoveTree":   "the parent of a directory, which the host trusts",
	},
	"sandbox/local/root": {
		"Locate":  "the resolver: where an absolute path begins",
		"inScope": "the resolver: where a scope begins",
		"walk":    "the resolver: where an absolute path begins",
		"Close":   "the mark of no descriptor",
		"Reopen":  "a descriptor, by /proc/self/fd",
		"fixMode": "a descriptor, by /proc/self/fd",
	},
	"rpc":        {},
	"rpc/server": {},
	"transfer":   {},
	"adapter":    {},
}

// TestNoNakedPaths: in the rooms that clients' paths get to, a file is opened
// by the resolver or beneath one of its descriptors.
func TestNoNakedPaths(t *testing.T) {
	for room, allowed := range ownFiles {
		used := map[string]bool{}
		for _, call := range nakedIn(t, filepath.Join("..", room)) {
			if used[call.in] = true; allowed[call.in] == "" {
				t.Errorf("%s: %s calls %s", call.at, call.in, call.what)
			}
		}
		for in := range allowed {
			if !used[in] {
				t.Errorf("%s: %s needs no leave any more", room, in)
			}
		}
	}
}

type nakedCall struct{ at, in, what string }

// nakedIn returns the calls of a directory's files, tests apart.
func nakedIn(t *testing.T, dir string) (calls []nakedCall) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	set := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, nakedCalls(set, file)...)
	}
	return calls
}

func nakedCalls(set *token.FileSet, file *ast.File) (calls []nakedCall) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if what := naked(n); what != "" {
				calls = append(calls, nakedCall{set.Position(n.Pos()).String(), f.Name.Name, what})
			}
			return true
		})
	}
	return calls
}

// naked names the function of a package that n mentions, if it finds files by
// name, or AT_FDCWD, which makes one of any.
func naked(n ast.Node) string {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from, ok := s.X.(*ast.Ident)
	if !ok || !strings.Contains(byName[from.Name], " "+s.Sel.Name+" ") && s.Sel.Name != "AT_FDCWD" {
		return ""
	}
	return from.Name + "." + s.Sel.Name
}

// TestNakedPathsAreSeen is the control of TestNoNakedPaths.
func TestNakedPathsAreSeen(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", `package x
		func (s *S) a() { os.Open(p); unix.Openat(fd, p, 0, 0) }
		func b() { open := os.ReadFile; unix.Openat(unix.AT_FDCWD, p, 0, 0) }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, c := range nakedCalls(set, file) {
		seen = append(seen, c.in+" "+c.what)
	}
	if got, want := strings.Join(seen, ", "), "a os.Open, b os.ReadFile, b unix.AT_FDCWD"; got != want {
		t.Errorf("seen: %s, want %s", got, want)
	}
}
