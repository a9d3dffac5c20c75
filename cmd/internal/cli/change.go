package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/config"
)

func applyCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE …",
		Short: "Declare the functions of a manifest, or change them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var functions []api.Function
			for _, path := range files {
				found, err := config.Load(path)
				if err != nil {
					return err
				}
				functions = append(functions, found...)
			}
			if err := config.CheckUnique(functions); err != nil {
				return err
			}
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			for _, f := range functions {
				var done admin.Declared
				if err := c.Call(cmd.Context(), http.MethodPost, admin.PathFunctions, f, &done); err != nil {
					return fmt.Errorf("apply %s: %w", f.Name.Short(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", f.Name.Short(), done.Result)
				if done.Doubts != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "rouse: %s can't start as things are: %s\n", f.Name.Short(), done.Doubts)
				}
				for _, lost := range done.LostNames {
					fmt.Fprintln(cmd.ErrOrStderr(), "rouse:", lost)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "manifest; - is standard input (repeatable)")
	_ = cmd.MarkFlagRequired("file") // fails only for a flag that does not exist
	return cmd
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME …",
		Short:             "Remove functions: requests that run finish, those that wait are refused",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: functionNames,
		RunE: eachFunction(func(cmd *cobra.Command, c *client, name string) error {
			if err := c.Call(cmd.Context(), http.MethodDelete, functionPath(name, ""), nil, nil); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", name)
			return err
		}),
	}
}

// eachFunction does one thing to each function that is named.
func eachFunction(do func(*cobra.Command, *client, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, names []string) error {
		c, err := dial(cmd)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(cmd, c, name); err != nil {
				return err
			}
		}
		return nil
	}
}
