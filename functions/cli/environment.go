package cli

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/process"
)

const alone = "none"

func whole(changed func(string) bool, env []string) bool {
	return changed("spec") || process.Variable(env, EnvFunction) != ""
}

// fromEnvironment sets each flag that was not given from its variable, but for fields of a function that is given as JSON.
func (f *flags) fromEnvironment(flags *pflag.FlagSet, env []string) error {
	f.fromEnv = map[string]bool{}
	whole := whole(flags.Changed, env)
	inFunction := []string{"adapters"}
	for f := range reflect.TypeFor[fields]().Fields() {
		inFunction = append(inFunction, f.Tag.Get("flag"))
	}
	var failed error
	flags.VisitAll(func(flag *pflag.Flag) {
		name := "ROUSE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if flag.Changed || whole && slices.Contains(inFunction, flag.Name) || name == EnvFunction || name == EnvEvents {
			return
		}
		if value := process.Variable(env, name); value != "" {
			if err := flags.Set(flag.Name, value); err != nil {
				failed = errors.Join(failed, fmt.Errorf("the environment variable %s: %w", name, err))
			}
			f.fromEnv[flag.Name] = true
		}
	})
	return failed
}

// Config returns the settings in env that apply to all instances of a program, without the function or the listen address.
func Config(env []string) (functions.Config, error) {
	var f flags
	var cmd cobra.Command
	f.define(&cmd)
	if err := errors.Join(f.fromEnvironment(cmd.Flags(), append(slices.Clip(env), EnvFunction+"={}")), f.limits()); err != nil {
		return functions.Config{}, err
	}
	c := f.Cfg
	return functions.Config{
		Drain: c.Drain, StopGrace: c.StopGrace, ProbeInterval: c.ProbeInterval, ProbeTimeout: c.ProbeTimeout, MaxBody: c.MaxBody,
		Models: c.Models, ModelsLimit: c.ModelsLimit, Share: c.Share, HubTokenFile: c.HubTokenFile,
		Diagnostics: process.Variable(env, "ENABLE_DIAGNOSTICS") == "true", Env: env,
	}, nil
}

// join configures the control plane if there is one, and the function is not given as JSON.
func (f *flags) join(told api.Function, args, env []string, changed func(string) bool) error {
	revision := process.Variable(env, "K_REVISION")
	switch {
	case whole(changed, env), f.control == alone, f.control == "" && revision == "":
		return nil
	case revision == "":
		return fmt.Errorf("--control: the control plane knows an instance by its pod and its revision, and this is no pod of a Knative revision: set K_REVISION, or leave --control out")
	}
	namespace := cmp.Or(f.Namespace, f.pod.Namespace, process.Variable(env, "POD_NAMESPACE"))
	if f.function.Name == "" {
		f.function.Name = api.NewFunctionName(namespace, revision)
		if service := process.Variable(env, "K_SERVICE"); service != "" {
			f.function.Service = api.NewFunctionName(namespace, service)
		}
	}
	if len(f.Cfg.Devices) == 0 {
		f.Cfg.Devices = functions.VisibleDevices(process.Variable(env, "NVIDIA_VISIBLE_DEVICES"))
	}
	name, service, port := f.function.Name, f.function.Service, process.Variable(env, "PORT")
	f.Cfg.Join = &functions.Join{
		Control: api.Endpoint(cmp.Or(f.control, control.DefaultControlURL)), Namespace: namespace, Revision: revision,
		Role: control.Role(process.Variable(env, "ROUSE_ROLE")),
		Merge: func(declared api.Function) api.Function {
			over := func(flag string) bool {
				annotated := flag == "runtime" && declared.Runtime.Kind != "" || flag == "model" && declared.Runtime.Model != ""
				return changed(flag) && !(annotated && f.fromEnv[flag])
			}
			fn := overlay(declared, told, args, over)
			if fn.Runtime.Kind == api.RuntimeCommand && f.Cfg.RuntimePort == 0 {
				fn.Runtime.Command = unexpanded(fn.Runtime.Command, port)
			}
			fn.Name, fn.Service = cmp.Or(declared.Name, name), cmp.Or(declared.Service, service)
			return fn
		},
	}
	return nil
}

// unexpanded puts $(PORT) back into a command in which Kubernetes has expanded it to the container's port, which is the function's own.
func unexpanded(command []string, port string) []string {
	if port == "" {
		return command
	}
	out := slices.Clone(command)
	for i, word := range out {
		if before, found := strings.CutSuffix(word, port); found && (before == "" || strings.HasSuffix(before, "=") || strings.HasSuffix(before, ":")) {
			out[i] = before + "$(PORT)"
		}
	}
	return out
}
