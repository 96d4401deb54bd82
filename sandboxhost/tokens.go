package sandboxhost

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/controld/controld/rpc"
)

// AnySandbox in a token's line lets it open every sandbox of its tenant.
const AnySandbox = "*"

var (
	tenantName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	sandboxName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

// Grant is what a token opens.
type Grant struct {
	Tenant string
	// Sandbox is a name or [AnySandbox].
	Sandbox string
}

// Check tells whether the names of a grant can be.
func (g Grant) Check() error {
	if !tenantName.MatchString(g.Tenant) {
		return fmt.Errorf("tenant %q: want [A-Za-z0-9][A-Za-z0-9._-]{0,62}", g.Tenant)
	}
	if g.Sandbox != AnySandbox && !sandboxName.MatchString(g.Sandbox) {
		return fmt.Errorf("sandbox %q: want %s or [a-z0-9][a-z0-9-]{0,62}", g.Sandbox, AnySandbox)
	}
	return nil
}

// covers tells whether the grant opens a sandbox.
func (g Grant) covers(sandbox string) bool {
	return g.Sandbox == AnySandbox || g.Sandbox == sandbox
}

// Tokens is the list of grants by the SHA-256 of their secrets. The secrets
// themselves are nowhere.
type Tokens struct {
	grants map[[sha256.Size]byte]Grant
}

// ParseTokens reads lines "TENANT SANDBOX-or-* SHA256HEX"; empty lines and
// lines that begin with '#' are skipped. name stands in errors.
func ParseTokens(name string, r io.Reader) (*Tokens, error) {
	t := &Tokens{grants: make(map[[sha256.Size]byte]Grant)}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		grant, sum, err := parseGrant(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		t.grants[sum] = grant
	}
	return t, lines.Err()
}

func parseGrant(line string) (Grant, [sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return Grant{}, sum, fmt.Errorf("want TENANT SANDBOX-or-* SHA256HEX, got %d fields", len(fields))
	}
	grant := Grant{Tenant: fields[0], Sandbox: fields[1]}
	if err := grant.Check(); err != nil {
		return Grant{}, sum, err
	}
	raw, err := hex.DecodeString(fields[2])
	if err != nil || len(raw) != sha256.Size {
		return Grant{}, sum, fmt.Errorf("want 64 hex digits of a SHA-256")
	}
	copy(sum[:], raw)
	return grant, sum, nil
}

// LoadTokens reads a token file. One that others than its owner may read or
// write is refused: who can write it can open everything.
func LoadTokens(path string) (*Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %#o lets others in; run chmod 600 on it", path, perm)
	}
	return ParseTokens(path, f)
}

// SecretGrants returns a list of one: the secret with this SHA-256 opens g.
func SecretGrants(sum [sha256.Size]byte, g Grant) *Tokens {
	return &Tokens{grants: map[[sha256.Size]byte]Grant{sum: g}}
}

// find returns what a secret opens. It is found by its hash, so that the time
// it takes says nothing of a secret that is nearly right.
func (t *Tokens) find(secret string) (Grant, bool) {
	sum := sha256.Sum256([]byte(secret))
	for known, grant := range t.grants {
		if subtle.ConstantTimeCompare(known[:], sum[:]) == 1 {
			return grant, true
		}
	}
	return Grant{}, false
}

// Authenticate returns what a hello's token opens. A token that is wrong, a
// tenant that does not match it and a sandbox that it does not cover are all
// [sandbox.KindUnauthenticated], without a difference.
func (t *Tokens) Authenticate(hello rpc.HelloParams) (Grant, error) {
	grant, ok := t.find(hello.Token)
	if !ok || hello.Tenant != "" && hello.Tenant != grant.Tenant || !grant.covers(hello.Sandbox) {
		return Grant{}, notOpened()
	}
	return grant, nil
}

// NewSecret returns a new secret, 43 characters, and the line of a token file
// that grants it.
func NewSecret(g Grant) (secret, line string, err error) {
	if err := g.Check(); err != nil {
		return "", "", err
	}
	var raw [32]byte
	rand.Read(raw[:]) // never fails, see crypto/rand
	secret = base64.RawURLEncoding.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, fmt.Sprintf("%s %s %x\n", g.Tenant, g.Sandbox, sum), nil
}

// AppendToken adds a line to a token file, which it makes with mode 0600.
func AppendToken(path, line string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("%s: mode %#o lets others in; run chmod 600 on it", path, perm)
	}
	old, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
		line = "\n" + line
	}
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	return f.Close()
}
