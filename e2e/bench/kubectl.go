// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"

	"navix.sh/atoll/charts"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/stack"
)

const (
	proxyGets       = 60   // requests of a leg for one object
	proxyGetRate    = 40.0 // a second; because each takes a few milliseconds
	proxyLists      = 8    // and for all of them
	proxyListRate   = 5.0
	proxyChanges    = 30
	proxyChangeRate = 20.0
	proxyObjects    = 500
	proxyBytes      = 2000 // of each object
)

// kubectl measures the API server of a cluster through hub, link and worker, beside direct access. All are on one machine: what is shown
// is what the hops cost, without the network between them.
func (b *bench) kubectl(ctx context.Context, add func(...result)) error {
	p, through, err := b.newProxied(ctx)
	if err != nil {
		return err
	}
	admin, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	for i := range proxyObjects {
		if _, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "object-" + strconv.Itoa(i)},
			Data:       map[string]string{"text": strings.Repeat("x", proxyBytes)},
		}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating an object: %w", err)
		}
	}
	for _, figure := range []struct {
		name string
		leg  func(ctx context.Context, objects typedv1.ConfigMapInterface, seed uint64) (load.Result, error)
	}{
		{"one object of 2 kB", getLeg}, {"a list of 500 objects of 2 kB", listLeg}, {"from a change to its event in a watch", watchLeg},
	} {
		by := func(name string, config *restclient.Config) (arm, error) {
			config = restclient.CopyConfig(config)
			config.QPS = -1
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return arm{}, fmt.Errorf("building a client: %w", err)
			}
			return arm{name: name, run: func(ctx context.Context, seed uint64) (leg, error) {
				result, err := figure.leg(ctx, client.CoreV1().ConfigMaps(namespace), seed)
				return leg{Result: result}, err
			}}, nil
		}
		hub, err := by("through the hub", through)
		if err != nil {
			return err
		}
		direct, err := by("direct", p.Config())
		if err != nil {
			return err
		}
		legs, err := b.interleave(ctx, figure.name, b.size.pairs, hub, direct)
		if err != nil {
			return err
		}
		add(compare("kubectl through the hub: "+figure.name+", p50", "ms", quantile(0.5), legs[0], legs[1]))
	}
	return nil
}

// newProxied starts a plane whose API server is served by a hub, and returns how to reach it through that.
func (b *bench) newProxied(ctx context.Context) (*plane.Plane, *restclient.Config, error) {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("making a folder: %w", err)
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(dir) })
	keys, _, err := stack.APIKeys(ctx, b.binDir, dir, map[string]string{"me": "--all --scopes=admin"})
	if err != nil {
		return nil, nil, err
	}
	addresses, err := ports.Free(1)
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, nil, err
	}
	// Beyond loopback the API has TLS, as the API server has.
	p, atoll, err := b.newStackOf(ctx, plane.Options{}, stack.Options{
		HubArgs: []string{"--api-keys-file=" + keys, "--listen=0.0.0.0:" + port, "--clusters-proxy"}, WorkerArgs: []string{"--serve-kubernetes"},
	})
	if err != nil {
		return nil, nil, err
	}
	files, err := charts.Worker()
	if err != nil {
		return nil, nil, err
	}
	rights, err := fs.ReadFile(files, "optional/kubernetes_proxy.yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the chart: %w", err)
	}
	if err := stack.Apply(ctx, p, string(rights), "--server-side"); err != nil {
		return nil, nil, err
	}
	_, err = p.Kubectl(ctx, "create", "clusterrolebinding", "me", "--clusterrole=cluster-admin", "--user=atoll:key:me")
	return p, &restclient.Config{
		Host:            "https://" + addresses[0] + "/v1/clusters/" + clusterID + "/proxy",
		BearerTokenFile: filepath.Join(dir, "me.token"),
		TLSClientConfig: restclient.TLSClientConfig{CAFile: atoll.HubCA()},
	}, err
}

func getLeg(ctx context.Context, objects typedv1.ConfigMapInterface, seed uint64) (load.Result, error) {
	return load.Open(ctx, proxyGets, proxyGetRate, seed, func(ctx context.Context, i int) error {
		_, err := objects.Get(ctx, "object-"+strconv.Itoa(i), metav1.GetOptions{})
		return err
	}), nil
}

func listLeg(ctx context.Context, objects typedv1.ConfigMapInterface, seed uint64) (load.Result, error) {
	return load.Open(ctx, proxyLists, proxyListRate, seed, func(ctx context.Context, _ int) error {
		list, err := objects.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) < proxyObjects {
			err = fmt.Errorf("the list has %d objects", len(list.Items))
		}
		return err
	}), nil
}

// watchLeg changes an object and waits for the event of it. Each change has a number, by which its event is known; because a change may
// begin before the one before it has come.
func watchLeg(ctx context.Context, objects typedv1.ConfigMapInterface, seed uint64) (load.Result, error) {
	const name, key = "object-0", "number"
	object, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return load.Result{}, fmt.Errorf("reading an object: %w", err)
	}
	events, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: object.ResourceVersion})
	if err != nil {
		return load.Result{}, fmt.Errorf("watching an object: %w", err)
	}
	object.ResourceVersion = "" // a change replaces whatever is there
	came, ended := make([]chan struct{}, proxyChanges), make(chan struct{})
	for i := range came {
		came[i] = make(chan struct{}, 1)
	}
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			seen, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				continue
			}
			if i, err := strconv.Atoi(seen.Data[key]); err == nil && i < len(came) {
				select {
				case came[i] <- struct{}{}:
				default:
				}
			}
		}
	}()
	defer func() {
		events.Stop()
		<-ended
	}()
	return load.Open(ctx, proxyChanges, proxyChangeRate, seed, func(ctx context.Context, i int) error {
		changed := object.DeepCopy()
		changed.Data[key] = strconv.Itoa(i)
		if _, err := objects.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return err
		}
		select {
		case <-came[i]:
			return nil
		case <-ended:
			return io.ErrUnexpectedEOF
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New("no event came"))
		}
	}), nil
}
