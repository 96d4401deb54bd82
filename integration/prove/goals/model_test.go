package goals

import (
	"testing"

	"github.com/controld/controld/sandbox"
)

// TestModel walks through what calls lead to.
func TestModel(t *testing.T) {
	m := tree{}
	for _, c := range []struct {
		call action
		want string
	}{
		{action{"read", "a", ""}, failed(sandbox.KindNotFound)},
		{action{"upload", "d/x", "1"}, failed(sandbox.KindNotFound)},
		{action{"write", "d/x", "12"}, done},
		{action{"list", "d", ""}, done + " x"},
		{action{"stat", "d/x", ""}, done + " file 2"},
		{action{"stat", "d", ""}, done + " directory"},
		{action{"append", "d/x", "3"}, done},
		{action{"read", "d/x", ""}, done + " 123"},
		{action{"append", "d", "3"}, "code"},
		{action{"read", "d", ""}, failed(sandbox.KindIsDirectory)},
		{action{"write", "d", ""}, failed(sandbox.KindIsDirectory)},
		{action{"mkdir", "d", ""}, failed(sandbox.KindExists)},
		{action{"rm", "d", ""}, failed(sandbox.KindIsDirectory)},
		{action{"upload", "a", "f"}, done},
		{action{"read", "a/x", ""}, failed(sandbox.KindNotDirectory)},
		{action{"list", "a", ""}, failed(sandbox.KindNotDirectory)},
		{action{"exists", "a/x", ""}, done + " false"},
		{action{"rm", "a", ""}, done},
		{action{"exists", "a", ""}, done + " false"},
		{action{"rm -r", "d", ""}, done},
		{action{"exists", "d/x", ""}, done + " false"},
		{action{"mkdir", "d", ""}, done},
		{action{"list", "d", ""}, done + " "},
	} {
		if got := m.apply(c.call); got != c.want {
			t.Errorf("%s: %q, want %q", c.call, got, c.want)
		}
	}
}

// TestWorlds: answers that an order explains leave worlds, others none.
func TestWorlds(t *testing.T) {
	write := func(data, result string) answered { return answered{action{"write", "a", data}, result} }
	read := func(result string) answered { return answered{action{"read", "a", ""}, result} }
	for name, c := range map[string]struct {
		steps [][]answered
		want  int
	}{
		"one after the other":         {[][]answered{{write("1", done)}, {read("done 1")}}, 1},
		"the old content":             {[][]answered{{write("1", done)}, {write("2", done)}, {read("done 1")}}, 0},
		"at once, either order":       {[][]answered{{write("1", done), write("2", done)}}, 2},
		"a read between two":          {[][]answered{{write("1", done), write("2", done), read("done 1")}, {read("done 2")}}, 1},
		"a read of neither":           {[][]answered{{write("1", done), read("done 3")}}, 0},
		"lost and done":               {[][]answered{{write("1", "")}, {read("done 1")}}, 1},
		"lost and not done":           {[][]answered{{write("1", "")}, {read(failed(sandbox.KindNotFound))}}, 2},
		"lost and done later":         {[][]answered{{write("1", "")}, {read(failed(sandbox.KindNotFound))}, {read("done 1")}}, 1},
		"lost and done twice":         {[][]answered{{{action{"append", "a", "x"}, ""}}, {read("done xx")}}, 0},
		"lost, and undone afterwards": {[][]answered{{write("1", "")}, {read("done 1")}, {read(failed(sandbox.KindNotFound))}}, 0},
	} {
		may := worlds{}
		may.add(world{tree: tree{}})
		for _, s := range c.steps {
			may = may.after(s)
		}
		if len(may) != c.want {
			t.Errorf("%s: %d worlds, want %d: %v", name, len(may), c.want, may)
		}
	}
}
