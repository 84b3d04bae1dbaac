// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	pacedRequests = 120  // of a leg whose latency is measured
	pacedRate     = 50.0 // a second; because each takes one or two milliseconds
	smallRequest  = 1.5  // what a request may cost, beside one through kubectl port-forward
	webRequests   = 2000 // of a leg whose rate is measured
	webCallers    = 4    // at once, each on a connection of its own
)

// port makes requests to a web server in a sandbox: through the hub; through kubectl port-forward; and through that behind a reverse proxy,
// which is as many processes as the way through the hub.
func (w *agentsWorld) port(ctx context.Context, add func(...result)) error {
	sandbox, err := w.hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName})
	if err != nil {
		return err
	}
	w.hold(sandbox.GetId())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening as the sandbox: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})}
	go func() { _ = server.Serve(lis) }()
	defer func() { _ = server.Close() }()
	_, port, _ := net.SplitHostPort(lis.Addr().String())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kubectl := w.plane.KubectlCommand(ctx, "-n", namespace, "port-forward", sandbox.GetPod(), ":"+port)
	forwarded, err := stack.Forward(kubectl)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = kubectl.Wait()
	}()
	proxied, ended, err := startProxy(ctx, forwarded)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		_ = ended()
	}()
	return errors.Join(w.portLegs(ctx, add,
		w.atoll.HubEndpoint().URL()+"/v1/sandboxes/"+sandbox.GetId()+"/ports/"+port+"/", "http://"+forwarded, "http://"+proxied), w.refill(ctx))
}

// portLegs compares the three ways to a port: by the latency at a low rate, and by the rate of several callers.
func (w *agentsWorld) portLegs(ctx context.Context, add func(...result), hub, forwarded, proxied string) error {
	arms := func(send sender) []arm {
		to := func(name, url string) arm {
			return loaded(name, nil, func(ctx context.Context, seed uint64) load.Result {
				through := &http.Transport{MaxIdleConnsPerHost: webCallers}
				defer through.CloseIdleConnections()
				return send(ctx, seed, func(ctx context.Context, _ int) error { return getOnce(ctx, through, url) })
			})
		}
		return []arm{to("hub", hub), to("port-forward", forwarded), to("port-forward and proxy", proxied)}
	}
	legs, err := w.bench.interleave(ctx, fmt.Sprintf("port, %g requests a second", pacedRate), w.bench.size.pairs,
		arms(func(ctx context.Context, seed uint64, do load.Operation) load.Result {
			return load.Open(ctx, pacedRequests, pacedRate, seed, do)
		})...)
	if err != nil {
		return err
	}
	add(compare("a small request to a port, p50, beside kubectl port-forward", "ms", quantile(0.5), legs[0], legs[1]).atMost(smallRequest),
		compare("a small request to a port, p50, beside kubectl port-forward behind a proxy", "ms", quantile(0.5), legs[0], legs[2]))
	legs, err = w.bench.interleave(ctx, fmt.Sprintf("port, %d callers", webCallers), w.bench.size.pairs,
		arms(func(ctx context.Context, _ uint64, do load.Operation) load.Result {
			return load.Closed(ctx, webRequests, webCallers, do)
		})...)
	if err != nil {
		return err
	}
	add(compare(fmt.Sprintf("requests of %d callers to a port, beside kubectl port-forward", webCallers), "1/s", rate, legs[0], legs[1]),
		compare(fmt.Sprintf("requests of %d callers to a port, beside kubectl port-forward behind a proxy", webCallers), "1/s", rate,
			legs[0], legs[2]))
	return nil
}

// proxyCommand makes this program a reverse proxy.
const proxyCommand = "proxy"

// startProxy starts a process with a reverse proxy, which ends with the context.
func startProxy(ctx context.Context, to string) (address string, ended func() error, err error) {
	free, err := ports.Free(1)
	if err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, proxyCommand, free[0], to)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting a reverse proxy: %w", err)
	}
	if err := wait.Until(ctx, time.Minute, "the reverse proxy to listen", func(ctx context.Context) error {
		return getOnce(ctx, &http.Transport{DisableKeepAlives: true}, "http://"+free[0])
	}); err != nil {
		return "", nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return free[0], cmd.Wait, nil
}

// serveProxy is that process.
func serveProxy(address, to string) error {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: webCallers} // as many as the hub keeps
	server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: proxy}
	return server.ListenAndServe()
}

func getOnce(ctx context.Context, through *http.Transport, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	response, err := through.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err == nil && (response.StatusCode != http.StatusOK || string(text) != "hello") {
		err = fmt.Errorf("%s: %q", response.Status, text)
	}
	return err
}
