package goals

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/controld/controld/sandbox"
)

// tree is the model of a directory: the content of files by path, and a mark
// for directories. Its own root is always there.
type tree map[string]string

// aDir marks a directory; no file holds it.
const aDir = "\x00dir"

// action is one call of a history.
type action struct{ kind, path, data string }

func (a action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.kind, a.path, a.data))
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// reach tells why a path's last name cannot be looked up: its parent is no
// directory, or is not there.
func (t tree) reach(path string) sandbox.Kind {
	dir := parent(path)
	if dir == "" {
		return ""
	}
	switch at, ok := t[dir]; {
	case !ok:
		return sandbox.KindNotFound
	case at != aDir:
		return sandbox.KindNotDirectory
	}
	return ""
}

// failed is the result of a call that ends with an error.
func failed(k sandbox.Kind) string { return "error " + string(k) }

// done is the result of a call that ends well.
const done = "done"

// apply does what a call does and returns its result. The tree is changed.
func (t tree) apply(a action) string {
	if a.kind == "write" && t.reach(a.path) == sandbox.KindNotFound {
		t[parent(a.path)] = aDir
	}
	at, there := t[a.path]
	if k := t.reach(a.path); k != "" {
		return t.unreached(a, k)
	}
	switch a.kind {
	case "exists":
		return fmt.Sprint(done, " ", there)
	case "write", "upload":
		return t.put(a.path, a.data)
	case "append":
		return t.append(a.path, at, a.data)
	case "mkdir":
		if there {
			return failed(sandbox.KindExists)
		}
		t[a.path] = aDir
		return done
	}
	if !there {
		return failed(sandbox.KindNotFound)
	}
	return t.look(a, at)
}

// unreached is the result of a call whose path's last name has no directory.
func (t tree) unreached(a action, k sandbox.Kind) string {
	switch a.kind {
	case "exists":
		return done + " false"
	case "append":
		return "code"
	}
	return failed(k)
}

func (t tree) put(path, data string) string {
	if t[path] == aDir {
		return failed(sandbox.KindIsDirectory)
	}
	t[path] = data
	return done
}

// append is a command's.
func (t tree) append(path, at, data string) string {
	if at == aDir {
		return "code"
	}
	t[path] = at + data
	return done
}

// look is a call on what is there.
func (t tree) look(a action, at string) string {
	switch a.kind {
	case "stat":
		if at == aDir {
			return done + " directory"
		}
		return fmt.Sprint(done, " file ", len(at))
	case "read":
		if at == aDir {
			return failed(sandbox.KindIsDirectory)
		}
		return done + " " + at
	case "rm":
		if at == aDir {
			return failed(sandbox.KindIsDirectory)
		}
		delete(t, a.path)
		return done
	case "rm -r":
		maps.DeleteFunc(t, func(path, _ string) bool { return path == a.path || strings.HasPrefix(path, a.path+"/") })
		return done
	case "list":
		if at != aDir {
			return failed(sandbox.KindNotDirectory)
		}
		return done + " " + strings.Join(t.names(a.path), " ")
	}
	panic("no action is called " + a.kind)
}

// names lists what is in a directory, sorted.
func (t tree) names(dir string) []string {
	var names []string
	for path := range t {
		if parent(path) == dir && path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
	}
	slices.Sort(names)
	return names
}

// world is one of the trees that may be, with the calls that were lost and may
// still be done.
type world struct {
	tree    tree
	pending []action
}

func (w world) key() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(w.tree)) {
		fmt.Fprintf(&b, "%q=%q ", path, w.tree[path])
	}
	fmt.Fprint(&b, w.pending)
	return b.String()
}

// answered is a call and its result; an empty one is not known.
type answered struct {
	action
	result string
}

// worlds are all those that may be.
type worlds map[string]world

func (ws worlds) add(w world) { ws[w.key()] = w }

// after returns what may be when calls were made at once and answered like
// this: nothing where no order of them explains the answers.
func (ws worlds) after(calls []answered) worlds {
	next := worlds{}
	for _, w := range ws {
		w.orders(calls, next)
	}
	return next
}

// orders takes the calls, and what is pending, in every order.
func (w world) orders(calls []answered, next worlds) {
	if !slices.ContainsFunc(calls, func(c answered) bool { return c.result != "" }) {
		rest := world{w.tree, slices.Clone(w.pending)}
		for _, c := range calls {
			rest.pending = append(rest.pending, c.action)
		}
		next.add(rest)
	}
	for i, c := range calls {
		t := maps.Clone(w.tree)
		if got := t.apply(c.action); c.result == "" || c.result == got {
			world{t, w.pending}.orders(slices.Delete(slices.Clone(calls), i, i+1), next)
		}
	}
	for i, a := range w.pending {
		t := maps.Clone(w.tree)
		t.apply(a)
		world{t, slices.Delete(slices.Clone(w.pending), i, i+1)}.orders(calls, next)
	}
}
