package goals

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/controld/controld/sandbox"
)

// dir is a directory that is reached by its descriptor, whatever its name is.
type dir = *os.Root

// What the files f hold; that of the outside is longer.
const (
	insideText  = "inside"
	outsideText = "outside, the secret"
)

// furnish makes the directories. Outside there is a name that is not inside.
func (ar *arena) furnish() (err error) {
	a := filepath.Join(ar.scope, "a")
	for _, d := range []string{a, ar.out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("../out", filepath.Join(ar.scope, "b")); err != nil {
		return err
	}
	if ar.inside, err = os.OpenRoot(a); err != nil {
		return err
	}
	if ar.outside, err = os.OpenRoot(ar.out); err != nil {
		return err
	}
	for name, d := range map[string]dir{insideText: ar.inside, outsideText: ar.outside} {
		if err := errors.Join(d.WriteFile("f", []byte(name), 0o644), d.WriteFile("victim", nil, 0o644)); err != nil {
			return err
		}
	}
	return ar.outside.WriteFile("secret", nil, 0o644)
}

// restore puts the outside right and tells whether it was touched.
func (ar *arena) restore() (touched bool) {
	if text, err := ar.outside.ReadFile("f"); err != nil || string(text) != outsideText {
		ar.outside.WriteFile("f", []byte(outsideText), 0o644)
		touched = true
	}
	if ar.outside.Remove("new") == nil {
		touched = true
	}
	if _, err := ar.outside.Lstat("victim"); err != nil {
		ar.outside.WriteFile("victim", nil, 0o644)
		touched = true
	}
	return touched
}

// operation is one by the backend and by the naive way: resolve, see that it is
// inside, use the name.
type operation struct {
	name  string
	try   func(context.Context, *arena) (string, error)
	naive func(*arena) string
}

var raced = []operation{
	{"read_file", func(ctx context.Context, ar *arena) (string, error) {
		text, err := ar.backend.ReadFile(ctx, "a/f", sandbox.ReadOptions{Scope: ar.scope})
		return came(err, text == outsideText), err
	}, naiveRead},
	{"read_file_buffer", func(ctx context.Context, ar *arena) (string, error) {
		c, err := ar.backend.ReadFileBuffer(ctx, "a/f", sandbox.ReadOptions{Scope: ar.scope})
		return came(err, string(c.Data) == outsideText), err
	}, naiveRead},
	{"read_file_stream", func(ctx context.Context, ar *arena) (string, error) {
		s, err := ar.backend.ReadFileStream(ctx, "a/f", sandbox.ReadOptions{Scope: ar.scope})
		if err != nil {
			return came(err, false), err
		}
		defer s.Close()
		var b bytes.Buffer
		_, err = s.WriteTo(&b)
		return came(err, b.String() == outsideText), err
	}, naiveRead},
	{"write_file", func(ctx context.Context, ar *arena) (string, error) {
		_, err := ar.backend.WriteFile(ctx, "a/f", []byte(insideText), sandbox.WriteOptions{Scope: ar.scope})
		return came(err, false), err
	}, naiveWrite},
	{"write_file_stream", func(ctx context.Context, ar *arena) (string, error) {
		_, err := ar.backend.WriteFileStream(ctx, "a/f", strings.NewReader(insideText), sandbox.WriteOptions{Scope: ar.scope})
		return came(err, false), err
	}, naiveWrite},
	{"stat", func(ctx context.Context, ar *arena) (string, error) {
		st, err := ar.backend.Stat(ctx, "a/f", sandbox.StatOptions{Scope: ar.scope})
		return came(err, st.Size.Value == int64(len(outsideText))), err
	}, func(ar *arena) string {
		return ar.checked("a/f", func(path string) (bool, error) {
			st, err := os.Stat(path)
			return err == nil && st.Size() == int64(len(outsideText)), err
		})
	}},
	{"readdir", func(ctx context.Context, ar *arena) (string, error) {
		l, err := ar.backend.ReadDir(ctx, "a", sandbox.ReadDirOptions{Scope: ar.scope})
		return came(err, slices.Contains(l.Names, "secret")), err
	}, func(ar *arena) string {
		return ar.checked("a", func(path string) (bool, error) {
			entries, err := os.ReadDir(path)
			return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "secret" }), err
		})
	}},
	{"exists", func(ctx context.Context, ar *arena) (string, error) {
		ok, err := ar.backend.Exists(ctx, "a/secret", sandbox.ExistsOptions{Scope: ar.scope})
		return came(err, ok), err
	}, func(ar *arena) string {
		return ar.checked("a", func(path string) (bool, error) {
			_, err := os.Stat(path + "/secret")
			return err == nil, nil
		})
	}},
	{"mkdir", func(ctx context.Context, ar *arena) (string, error) {
		err := ar.backend.Mkdir(ctx, "a/new", sandbox.MkdirOptions{Scope: ar.scope})
		ar.inside.Remove("new")
		return came(err, false), err
	}, func(ar *arena) string {
		defer ar.inside.Remove("new")
		return ar.checked("a", func(path string) (bool, error) { return false, os.Mkdir(path+"/new", 0o755) })
	}},
	{"rm", func(ctx context.Context, ar *arena) (string, error) {
		err := ar.backend.Rm(ctx, "a/victim", sandbox.RmOptions{Scope: ar.scope})
		if err == nil {
			err = ar.inside.WriteFile("victim", nil, 0o644)
		}
		return came(err, false), err
	}, func(ar *arena) string {
		defer ar.inside.WriteFile("victim", nil, 0o644)
		return ar.checked("a", func(path string) (bool, error) { return false, os.Remove(path + "/victim") })
	}},
}

// checked does what naive programs do: it uses the name when it was inside a
// moment ago.
func (ar *arena) checked(name string, use func(path string) (outside bool, err error)) string {
	path := filepath.Join(ar.scope, name)
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err.Error()
	}
	if !strings.HasPrefix(to, ar.scope+"/") {
		return refused
	}
	outside, err := use(path)
	return came(err, outside)
}

func naiveRead(ar *arena) string {
	return ar.checked("a/f", func(path string) (bool, error) {
		text, err := os.ReadFile(path)
		return string(text) == outsideText, err
	})
}

func naiveWrite(ar *arena) string {
	return ar.checked("a/f", func(path string) (bool, error) {
		return false, os.WriteFile(path, []byte(insideText), 0o644)
	})
}
