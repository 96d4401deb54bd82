package daemon

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/controld/controld/sandboxhost"
)

// DevTenant is the tenant of serve --dev.
const DevTenant = "dev"

// devClientFile is what serve --dev leaves for the client commands.
const devClientFile = "client.json"

// DevClient tells a client where the daemon of serve --dev is.
type DevClient struct {
	Control string `json:"control"`
	Data    string `json:"data,omitempty"`
	Token   string `json:"token"`
}

// DevSecret returns the secret of serve --dev in a state directory. At the
// first start it is made, mode 0600, with a token file beside it; path is
// that file's.
func DevSecret(stateDir string) (secret, path string, err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", "", err
	}
	secretFile := filepath.Join(stateDir, "dev-token")
	path = filepath.Join(stateDir, "dev-tokens")
	text, err := os.ReadFile(secretFile)
	if err == nil && len(text) > 0 {
		if _, err := os.Stat(path); err == nil {
			return string(text), path, nil
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: DevTenant, Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		return "", "", err
	}
	if err := WriteWhole(path, []byte(line), 0o600); err != nil {
		return "", "", err
	}
	return secret, path, WriteWhole(secretFile, []byte(secret), 0o600)
}

// LeaveDevClient writes where a client finds the daemon, mode 0600.
func LeaveDevClient(dir string, c DevClient) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return WriteWhole(filepath.Join(dir, devClientFile), append(text, '\n'), 0o600)
}

// FindDevClient reads what [LeaveDevClient] wrote.
func FindDevClient(dir string) (DevClient, error) {
	var c DevClient
	text, err := os.ReadFile(filepath.Join(dir, devClientFile))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}
