package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandboxhost"
)

func (a *app) tokenCommand() *cobra.Command {
	token := &cobra.Command{Use: "token", Short: "Make tokens", GroupID: groupDaemon, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return usagef("token: say token new") }}
	var grant sandboxhost.Grant
	var file string
	create := &cobra.Command{
		Use:   "new --tenant T [--sandbox S] --tokens FILE",
		Short: "Print a new secret, once, and grant it in a token file",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if grant.Tenant == "" || file == "" {
				return usagef("token new: --tenant and --tokens are required")
			}
			secret, line, err := sandboxhost.NewSecret(grant)
			if err != nil {
				return usagef("token new: %v", err)
			}
			if err := sandboxhost.AppendToken(file, line); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, secret)
			return err
		},
	}
	create.Flags().StringVar(&grant.Tenant, "tenant", "", "whose token it is")
	create.Flags().StringVar(&grant.Sandbox, "sandbox", sandboxhost.AnySandbox, "the sandbox that it opens, or * for all")
	create.Flags().StringVar(&file, "tokens", "", "token file to add the grant to (mode 0600)")
	token.AddCommand(create)
	return token
}
