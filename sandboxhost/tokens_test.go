package sandboxhost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

const sum = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // of "secret"

func TestParseTokens(t *testing.T) {
	good := "# a comment\n\nacme * " + sum + "\n  Acme.b-1_c  one \t" + strings.ToUpper(sum) + "  \n"
	if _, err := sandboxhost.ParseTokens("f", strings.NewReader(good)); err != nil {
		t.Error(err)
	}
	for name, line := range map[string]string{
		"two fields": "acme *", "four fields": "acme * " + sum + " x", "short sum": "acme * " + sum[:62], "no hex": "acme * " + strings.Repeat("z", 64),
		"tenant": "../x * " + sum, "dots": ".. * " + sum, "sandbox": "acme A " + sum, "long": strings.Repeat("a", 64) + " * " + sum,
	} {
		_, err := sandboxhost.ParseTokens("f", strings.NewReader("# first\n"+line+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "f:2: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme one "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		hello rpc.HelloParams
		ok    bool
	}{
		"right":         {rpc.HelloParams{Token: "secret", Sandbox: "one"}, true},
		"right tenant":  {rpc.HelloParams{Token: "secret", Sandbox: "one", Tenant: "acme"}, true},
		"wrong tenant":  {rpc.HelloParams{Token: "secret", Sandbox: "one", Tenant: "other"}, false},
		"wrong sandbox": {rpc.HelloParams{Token: "secret", Sandbox: "two"}, false},
		"wrong token":   {rpc.HelloParams{Token: "Secret", Sandbox: "one"}, false},
		"no token":      {rpc.HelloParams{Sandbox: "one"}, false},
		"its hash":      {rpc.HelloParams{Token: sum, Sandbox: "one"}, false},
	} {
		grant, err := tokens.Authenticate(tc.hello)
		if tc.ok != (err == nil) || tc.ok && grant.Tenant != "acme" {
			t.Errorf("%s: %+v, %v", name, grant, err)
		}
		if !tc.ok && sandbox.KindOf(err) != sandbox.KindUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewSecretOpensWhatItsLineSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("acme * "+sum), 0o600); err != nil { // without an end of line
		t.Fatal(err)
	}
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: "t", Sandbox: "*"})
	if err != nil || len(secret) != 43 {
		t.Fatalf("%q, %v", secret, err)
	}
	if err := sandboxhost.AppendToken(path, line); err != nil {
		t.Fatal(err)
	}
	tokens, err := sandboxhost.LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	for token, tenant := range map[string]string{secret: "t", "secret": "acme"} {
		grant, err := tokens.Authenticate(rpc.HelloParams{Token: token, Sandbox: "any"})
		if err != nil || grant.Tenant != tenant {
			t.Errorf("%+v, %v", grant, err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := sandboxhost.LoadTokens(path); err == nil {
		t.Error("a file that others may read was taken")
	}
	if err := sandboxhost.AppendToken(path, line); err == nil {
		t.Error("a file that others may read was added to")
	}
	if _, _, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: "a b", Sandbox: "*"}); err == nil {
		t.Error("a tenant that cannot be")
	}
}
