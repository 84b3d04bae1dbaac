// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
)

const canary = "canary-7f3a"

func hookSecret(data map[string]string, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "creds", Labels: map[string]string{v1alpha1.HookSecretLabelKey: "true"}},
		Data:       map[string][]byte{},
	}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func TestWhichSecretsHooksMayHave(t *testing.T) {
	token := map[string]string{"token": canary}
	teams := func(list string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Annotations = map[string]string{v1alpha1.HookSecretTeamsAnnotationKey: list} }
	}
	const none = `there is no Secret "creds" with the label agentbox.navix.sh/hook-secret=true for hooks of this team`
	for name, c := range map[string]struct {
		secret *corev1.Secret
		team   string
		want   string // of the error; empty: none
	}{
		"no Secret":            {nil, "red", none},
		"one for hooks":        {hookSecret(token), "red", ""},
		"one for all, no team": {hookSecret(token), "", ""},
		"no label":             {hookSecret(token, func(s *corev1.Secret) { s.Labels = nil }), "red", none},
		"another value":        {hookSecret(token, func(s *corev1.Secret) { s.Labels[v1alpha1.HookSecretLabelKey] = "false" }), "red", none},
		"for the team":         {hookSecret(token, teams("blue, red")), "red", ""},
		"for another team":     {hookSecret(token, teams("blue")), "red", none},
		"for no team":          {hookSecret(token, teams("")), "", none},
		"no such key":          {hookSecret(map[string]string{"other": canary}), "red", `Secret "creds" has no key "token"`},
		"too much":             {hookSecret(map[string]string{"token": strings.Repeat("x", hook.MaxSize+1)}), "red", "want at most 32768"},
	} {
		text, err := textOf(c.secret, hook.SecretKey{Name: "creds", Key: "token"}, c.team)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, errSecret) || text != "") {
			t.Errorf("%s: %q, %v; want %q", name, text, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), canary) || err == nil && text != canary {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// shelf has one Secret, or an error.
type shelf struct {
	mu     sync.Mutex
	secret *corev1.Secret
	err    error
}

func (s *shelf) Secret(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.secret == nil || name.Name != s.secret.Name || name.Namespace != s.secret.Namespace:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
	}
	return s.secret, nil
}

func (s *shelf) put(secret *corev1.Secret, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret, s.err = secret, err
}

const referring = `[{"name":"login","http":{"port":80,"headers":{"Authorization":{"valueFrom":{"secretKeyRef":{"name":"creds",` +
	`"key":"token"}}},"X-Plain":"a"},` +
	`"body":{"valueFrom":{"secretKeyRef":{"name":"creds","key":"body"}}}},"retries":1}]`

// The sandbox gets the value. No message, log or annotation has it, not even when the request fails with it.
func TestAValueOfASecretIsInTheRequestAlone(t *testing.T) {
	var logs bytes.Buffer
	secrets := &shelf{}
	bubble(t, referring, func(n *node, r *Runner) {
		r.opts.Secrets = secrets
		r.opts.Log = funcr.New(func(prefix, args string) { fmt.Fprintln(&logs, prefix, args) }, funcr.Options{Verbosity: 9})
		var got []string
		n.serve = func(_ http.ResponseWriter, r *http.Request) {
			n.change(func() { got = append(got, r.Header.Get("Authorization"), r.Header.Get("X-Plain")) })
		}
		secrets.put(nil, apierrors.NewInternalError(errors.New("the API server is away"))) // is retried, and counts as no failure
		begin(n, r)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := state(n, r); s.Status != Working || len(n.did()) > 0 {
			t.Errorf("without an API server: %v, did %q", s, n.did())
		}
		secrets.put(hookSecret(map[string]string{"token": "Bearer " + canary, "body": canary}), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		did := n.did()
		if s := state(n, r); s.Status != Done || len(did) != 1 || did[0] != `POST 10.0.0.7:80 / "`+canary+`"` ||
			strings.Join(got, ",") != "Bearer "+canary+",a" {
			t.Errorf("%v, did %q with %q", s, did, got)
		}
		for _, text := range []string{fmt.Sprint(n.pod.Annotations), fmt.Sprint(n.jobs(&v1alpha1.SandboxPoolSpec{})), logs.String()} {
			if strings.Contains(text, canary) {
				t.Errorf("the value stands in %s", text)
			}
		}
	})
	bubble(t, referring, func(n *node, r *Runner) { // a request whose error repeats it
		r.opts.Secrets = secrets
		r.opts.Log = funcr.New(func(prefix, args string) { fmt.Fprintln(&logs, prefix, args) }, funcr.Options{Verbosity: 9})
		resolved, err := r.resolve(t.Context(), n.pod, &n.jobs(&v1alpha1.SandboxPoolSpec{})[0].Steps[0])
		if err != nil || resolved.HTTP.Body.Text != canary {
			t.Fatalf("resolved to %+v, %v", resolved, err)
		}
		if text := resolved.redact(fmt.Errorf("sent %q and Bearer %s", canary, canary)); strings.Contains(text, canary) {
			t.Errorf("the message is %s", text)
		}
	})
}

// If a value contains another one, a message has no part of either, whatever their order and however they are written.
func TestAMessageHasNoRestOfAValue(t *testing.T) {
	const whole, part = `user "a" hunter2-7f3a`, `user "a"`
	for name, s := range map[string]*Step{
		"the part first": {Exec: &hook.Exec{Command: []string{"sh", part, whole}}},
		"the part last":  {Exec: &hook.Exec{Command: []string{"sh", whole, part}}},
		"in a request":   {HTTP: &hook.HTTP{Body: hook.Value{Text: part}, Headers: map[string]hook.Value{"X-Key": {Text: whole}}}},
	} {
		for _, text := range []string{whole, strconv.Quote(whole), url.QueryEscape(whole)} {
			if got := s.redact(errors.New("it refuses " + text)); got != "it refuses …" {
				t.Errorf("%s: of %s the message has %q", name, text, got)
			}
		}
	}
}

// A Secret that cannot be used fails the sandbox at once, with a reason of its own that names it.
func TestASecretThatCannotBeUsed(t *testing.T) {
	good := map[string]string{"token": "Bearer " + canary, "body": canary}
	for name, c := range map[string]struct {
		secrets Secrets
		want    string
	}{
		"off":     {nil, "--hook-secrets"},
		"missing": {&shelf{}, `there is no Secret "creds"`},
		"forbidden": {&shelf{err: apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "creds", nil)},
			"may not read Secrets in namespace default"},
		"not for a header": {&shelf{secret: hookSecret(good, func(s *corev1.Secret) { s.Data["token"] = []byte(canary + "\nX: y") })},
			`key "token" of Secret "creds" is not one line of text`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, referring, func(n *node, r *Runner) {
				r.opts.Secrets = c.secrets
				begin(n, r)
				synctest.Wait()
				s := state(n, r)
				if s.Status != Unresolved || !strings.Contains(s.Message, c.want) || !strings.Contains(s.Message, `hook 0 (http, "login")`) ||
					strings.Contains(s.Message, canary) {
					t.Errorf("%v, want %q", s, c.want)
				}
				if len(n.did()) > 0 {
					t.Errorf("did %q", n.did())
				}
			})
		})
	}
}
