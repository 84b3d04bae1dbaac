// SPDX-License-Identifier: Apache-2.0

// Command fleet keeps one ConfigMap in step in every cluster of a hub, with multicluster-runtime.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/provider"
)

var wanted = map[string]string{"greeting": "hello from the fleet"}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// contextOf uses the kubeconfig's context of the cluster's name.
func contextOf(_ context.Context, id string) (*rest.Config, error) {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: id}).ClientConfig()
}

func run(ctx context.Context) error {
	conn, err := grpc.NewClient(os.Getenv("ATOLL_SERVER"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	clusters, err := provider.New(provider.Options{Hub: sandboxv1.NewClustersClient(conn), Config: contextOf, Log: ctrl.Log})
	if err != nil {
		return err
	}
	local, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(local, clusters, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	keep := func(ctx context.Context, r mcreconcile.Request) (ctrl.Result, error) {
		cl, err := mgr.GetCluster(ctx, r.ClusterName)
		if err != nil {
			return ctrl.Result{}, err
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet"}}
		_, err = controllerutil.CreateOrUpdate(ctx, cl.GetClient(), object, func() error {
			object.Data = maps.Clone(wanted)
			return nil
		})
		return ctrl.Result{}, err
	}
	// Every namespace has the ConfigMap kube-root-ca.crt, and so every cluster that is engaged asks for the fleet's at once.
	err = mcbuilder.ControllerManagedBy(mgr).Named("fleet").For(&corev1.ConfigMap{}).Complete(mcreconcile.Func(keep))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
