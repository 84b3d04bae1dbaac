// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/atoll/e2e/forward"
	"navix.sh/atoll/e2e/load"
)

// Conversations cost the API server and the kubelet processor time, which here are on the machine of the honest claims. The direct attacks
// open the same conversations at the API server, without hub and worker, or write as much, so that a row can tell what is a cost of theirs.
const (
	// openingsAtOnce is how many conversations a worker opens at a time for a team.
	openingsAtOnce = 4
	// openConversations is how many a sandbox may have.
	openConversations = 128
	opened            = "opened"
)

// target is where direct conversations go.
type target struct {
	Kubeconfig, Namespace, Pod string
}

func (t target) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", t.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS, config.NextProtos = -1, []string{"http/1.1"}
	return config, nil
}

// opening returns what opens a conversation, openingsAtOnce at a time. ok is false where that fails.
func opening[C io.Closer](a *attacker, open func(context.Context) (C, error)) func(context.Context) (conn C, ok bool) {
	places := make(chan struct{}, openingsAtOnce)
	return func(ctx context.Context) (conn C, ok bool) {
		places <- struct{}{}
		defer func() { <-places }()
		a.attempts.Add(1)
		conn, err := open(ctx)
		if err != nil {
			a.tell("not opened")
			return conn, false
		}
		a.tell(opened)
		return conn, true
	}
}

// holding has n conversations, and what use does with each, until ctx ends.
func holding[C io.Closer](ctx context.Context, n int, open func(context.Context) (C, bool), use func(C)) {
	each(ctx, n, func(int) {
		if conn, ok := open(ctx); ok {
			use(conn)
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
	})
	<-ctx.Done()
}

// forwarding returns what opens a connection to the port that listen opens.
func (a *attacker) forwarding(ctx context.Context, listen func(context.Context) (port string, err error)) (
	func(context.Context) (net.Conn, bool), error,
) {
	port, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	config, err := a.Direct.config()
	if err != nil {
		return nil, err
	}
	open, err := forward.Port(config, a.Direct.Namespace, a.Direct.Pod, port)
	if err != nil {
		return nil, err
	}
	return opening(a, open), nil
}

func directUnreadPorts(ctx context.Context, a *attacker) error {
	open, err := a.forwarding(ctx, a.flood)
	if err != nil {
		return err
	}
	holding(ctx, a.size(40, 500), open, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, _ = io.ReadFull(conn, make([]byte, 16))
	})
	return nil
}

func directUnreadLogs(ctx context.Context, a *attacker) error {
	if err := a.print(ctx, printMuch); err != nil {
		return err
	}
	config, err := a.Direct.config()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	open := opening(a, func(ctx context.Context) (io.ReadCloser, error) {
		return kube.CoreV1().Pods(a.Direct.Namespace).GetLogs(a.Direct.Pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	})
	holding(ctx, a.size(40, 500), open, func(io.ReadCloser) {})
	return a.clean()
}

func directManyConversations(ctx context.Context, a *attacker) error {
	open, err := a.forwarding(ctx, a.silence)
	if err != nil {
		return err
	}
	holding(ctx, openConversations, open, func(net.Conn) {})
	return nil
}

func directLeftConversations(ctx context.Context, a *attacker) error {
	open, err := a.forwarding(ctx, a.swallow)
	if err != nil {
		return err
	}
	swarm(ctx, openingsAtOnce, func(int) {
		if conn, ok := open(ctx); ok {
			_ = conn.Close()
		}
	})
	return nil
}

// wantSpeed judges a row by its honest claims, and where they were slowed, by claims while the same conversations are opened without hub
// and worker.
func (w *world) wantSpeed(ctx context.Context, r row, g *ground, honest samples, m *measured) error {
	err := honest.wantSpeed()
	if !errors.Is(err, errSlow) || r.direct == nil {
		return err
	}
	own, err2 := w.directly(ctx, g)
	if err2 != nil {
		return errors.Join(err, fmt.Errorf("opening the same conversations at the API server: %w", err2))
	}
	is, beside := load.Quantile(honest.during, 0.99), load.Quantile(own.during, 0.99)
	m.P99Direct = milliseconds(own.during, 0.99)
	if is <= 2*beside {
		return nil
	}
	return fmt.Errorf("%w; %s while the same conversations were opened at the API server, want at most twice that", err, beside)
}

// directly measures honest claims during a row's direct attack.
func (w *world) directly(ctx context.Context, g *ground) (honest samples, err error) {
	at := *g
	at.Direct = &target{w.set.Plane("east").Kubeconfig(), w.own.GetNamespace(), w.own.GetPod()}
	if err := w.warm(ctx); err != nil {
		return honest, err
	}
	attacker, err := startAttacker(ctx, &at)
	if err != nil {
		return honest, err
	}
	var attack report
	var attackErr error
	honest, err = w.beside(ctx, func() { attack, attackErr = attacker.attack() })
	if attack.Told[opened] == 0 && attackErr == nil {
		attackErr = fmt.Errorf("%w: %+v", errNotArrived, attack)
	}
	return honest, errors.Join(err, attackErr)
}
