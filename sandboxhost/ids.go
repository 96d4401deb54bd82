package sandboxhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/controld/controld/sandbox"
)

// The users and groups that sandboxes have, where the host is root: above those
// that systems give to people, services and containers, below what is reserved.
const (
	idsFrom  = 1 << 30
	idsEach  = 1 << 16
	idsUntil = 0xf0000000
)

// idsFile remembers whose they are: the files of a sandbox are its users'.
const idsFile = "ids.json"

// ids gives each sandbox users and groups of its own, the same for as long as it
// has files.
type ids struct {
	path string

	mu   sync.Mutex
	of   map[string]int // index by TENANT/SANDBOX
	used map[int]bool
	free int // none below is
}

// openIDs reads what is known in a state directory; nil where this process is
// not root.
func openIDs(stateDir string) (*ids, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	k := &ids{path: filepath.Join(stateDir, idsFile), of: make(map[string]int), used: make(map[int]bool)}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k.of)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}
	for _, n := range k.of {
		k.used[n] = true
	}
	return k, nil
}

// get returns those of a sandbox. They are written down before they are used.
func (k *ids) get(tenant, name string) (IDs, error) {
	if k == nil {
		return IDs{}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := tenant + "/" + name
	n, known := k.of[key]
	if !known {
		for n = k.free; k.used[n]; n++ {
		}
		if idsFrom+(n+1)*idsEach > idsUntil {
			return IDs{}, &sandbox.Error{Kind: sandbox.KindResourceExhausted, Op: "start", Message: "no users are left for another sandbox",
				Limit: sandbox.Some(int64(n))}
		}
		k.of[key] = n
		if err := k.write(); err != nil {
			delete(k.of, key)
			return IDs{}, sandbox.AsError("start", "", err)
		}
		k.used[n], k.free = true, n+1
	}
	return IDs{Base: idsFrom + n*idsEach, Count: idsEach}, nil
}

// drop takes those of an owner back, who has no file any more.
func (k *ids) drop(tenant, name string) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := tenant + "/" + name
	n, known := k.of[key]
	if !known {
		return nil
	}
	delete(k.of, key)
	if err := k.write(); err != nil {
		k.of[key] = n
		return err
	}
	k.release(n)
	return nil
}

// move gives a sandbox the users of an instance that was nobody's, in place of
// those that it had.
func (k *ids) move(spec Spec) error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	from, to := "/"+spec.ID, spec.Tenant+"/"+spec.Sandbox
	n, known := k.of[from]
	if !known {
		return nil
	}
	before, had := k.of[to]
	delete(k.of, from)
	k.of[to] = n
	if err := k.write(); err != nil {
		k.of[from] = n
		if delete(k.of, to); had {
			k.of[to] = before
		}
		return err
	}
	if had {
		k.release(before)
	}
	return nil
}

// spares are the instances that were nobody's when they got users.
func (k *ids) spares() (all []string) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.of {
		if id, ok := strings.CutPrefix(key, "/"); ok {
			all = append(all, id)
		}
	}
	return all
}

func (k *ids) release(n int) {
	delete(k.used, n)
	k.free = min(k.free, n)
}

func (k *ids) write() error {
	text, err := json.Marshal(k.of)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(k.path+".new", k.path)
}
