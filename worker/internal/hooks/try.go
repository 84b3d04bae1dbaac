// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/worker/internal/allowed"
)

var (
	// errNotOurs means that the Pod no longer matches the job. The job ends without a result.
	errNotOurs = errors.New("the Pod has no such sandbox starting any more")
	// errUnsure means that the Pod could not be read, so nothing was tried.
	errUnsure = errors.New("reading the Pod")
	// errOutcomeUnknown means that it is unknown whether a command runs, ran, or will run.
	errOutcomeUnknown = errors.New("the outcome of the command is unknown")
	// errHopeless means that a retry does not help.
	errHopeless = errors.New("refused")
)

const (
	readTimeout = 5 * time.Second
	maxHeader   = 64 << 10
	maxMessage  = 256
)

// try makes one try of a step, in its job's Pod. It registers a tenant's command before it reads the Pod, so that an end that begins later
// does not reset the Pod. If the outcome is unknown when the time is up, the command stays registered, because the API server may still
// hold it (I13). A check's command is the pool's, and may run in any of its containers.
func (r *Runner) try(ctx context.Context, job *Job, s *Step) error {
	if s.Exec == nil || s.Retries == forever {
		_, err := r.attempt(ctx, job, s)
		return err
	}
	done, ok := r.opts.Guard.BeginExec(job.UID, job.Sandbox)
	if !ok {
		return fmt.Errorf("%w: its sandbox is not known yet, or about to end", errUnsure)
	}
	known, err := r.attempt(ctx, job, s)
	if known {
		done()
	}
	return err
}

// attempt reads the Pod and makes the try. known is false if the command may still be carried out later.
func (r *Runner) attempt(ctx context.Context, job *Job, s *Step) (known bool, err error) {
	pod, err := r.look(ctx, job)
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if !r.opts.Held() {
		return true, fmt.Errorf("%w: the lease is not held", errUnsure)
	}
	if s, err = r.resolve(ctx, pod, s); err != nil {
		return true, err
	}
	switch {
	case s.Exec != nil:
		err = r.opts.Exec.Exec(ctx, job.Pod, cmp.Or(s.Exec.Container, job.Main), s.Exec.Command)
	case s.HTTP != nil:
		err = r.request(ctx, pod, s.HTTP)
	default:
		err = r.connect(ctx, pod, s.TCP)
	}
	known = err == nil || ctx.Err() == nil && !errors.Is(err, errOutcomeUnknown)
	switch {
	case err == nil:
		return known, nil
	case errors.Is(err, errHopeless):
		return known, err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return known, fmt.Errorf("no success within %s", s.Timeout)
	}
	return known, errors.New(s.redact(err))
}

// look reads the Pod live, and checks that it matches the job.
func (r *Runner) look(ctx context.Context, job *Job) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pod, err := r.opts.Pods.Pod(ctx, job.Pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errNotOurs
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnsure, err)
	case !job.ours(pod):
		return nil, errNotOurs
	}
	return pod, nil
}

// addressOf returns the Pod's own address. It rejects addresses that could reach anything else.
func addressOf(pod *corev1.Pod, port int32) (string, error) {
	if fault := allowed.Port(&pod.Spec); fault != nil {
		return "", fmt.Errorf("%w: %s", errHopeless, fault.Message)
	}
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || !ip.IsGlobalUnicast() {
		return "", fmt.Errorf("the Pod's address is %q", pod.Status.PodIP)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))), nil
}

func (r *Runner) connect(ctx context.Context, pod *corev1.Pod, port int32) error {
	address, err := addressOf(pod, port)
	if err != nil {
		return err
	}
	conn, err := r.opts.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (r *Runner) request(ctx context.Context, pod *corev1.Pod, h *hook.HTTP) error {
	address, err := addressOf(pod, h.Port)
	if err != nil {
		return err
	}
	req, err := requestOf(ctx, address, h)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		// Dial only this address, whatever the request says.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return r.opts.Dial(ctx, network, address)
		},
		TLSClientConfig: r.tls, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func requestOf(ctx context.Context, address string, h *hook.HTTP) (*http.Request, error) {
	method := h.Method
	if method == "" {
		method = http.MethodGet
		if !h.Body.IsZero() {
			method = http.MethodPost
		}
	}
	target, err := url.ParseRequestURI(cmp.Or(h.Path, "/"))
	if err != nil {
		return nil, fmt.Errorf("%w: the path cannot be read", errHopeless)
	}
	target.Scheme, target.Host, target.User = "http", address, nil
	if strings.EqualFold(h.Scheme, "https") {
		target.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(h.Body.Text))
	if err != nil {
		return nil, fmt.Errorf("%w: the request cannot be built", errHopeless)
	}
	for name, value := range h.Headers {
		req.Header.Set(name, value.Text)
		if strings.EqualFold(name, "host") {
			req.Host = value.Text
		}
	}
	return req, nil
}

// redact removes from an error what the caller may want to hide: a client repeats whole URLs, and an API server repeats commands.
func (s *Step) redact(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	text := err.Error()
	var forms []string
	for _, secret := range s.secrets() {
		forms = append(forms, secret, url.QueryEscape(secret), strconv.Quote(secret))
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // longest first: it may contain a shorter one
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, "…")
	}
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], string(utf8.RuneError)) + "…"
	}
	return text
}

func (s *Step) secrets() []string {
	var all []string
	if s.Exec != nil && len(s.Exec.Command) > 0 {
		all = append(all, s.Exec.Command[1:]...)
	}
	if s.HTTP != nil {
		all = append(all, s.HTTP.Body.Text)
		if _, query, found := strings.Cut(s.HTTP.Path, "?"); found {
			all = append(all, query)
		}
		for _, value := range s.HTTP.Headers {
			all = append(all, value.Text)
		}
	}
	// A short one hides nothing, and removing it would break words.
	return slices.DeleteFunc(all, func(secret string) bool { return len(secret) <= 3 })
}
