// The lab's control plane: etcd, kube-apiserver, kube-scheduler and kube-controller-manager in one binary.
//
// Each sub-command is the upstream program, unchanged; only the one that was asked for is constructed, because the
// apiserver's and the scheduler's constructors both install the process's signal handler, and two of them panic.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers client-go's metrics with the components' /metrics
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: fleetwell-controlplane etcd|kube-apiserver|kube-scheduler|kube-controller-manager [flags]"

// component tells which program was asked for and drops its name from the arguments: by the name of the executable
// (a link called kube-apiserver), else by the first argument.
func component(args []string) (string, []string) {
	name := filepath.Base(args[0])
	switch name {
	case "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager":
		return name, args
	}
	if len(args) < 2 {
		return "", args
	}
	return args[1], append([]string{args[1]}, args[2:]...)
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

func main() {
	name, args := component(os.Args)
	os.Args = args
	switch name {
	case "etcd":
		etcdmain.Main(args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}
