// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"navix.sh/atoll/api/v1alpha1"
)

const (
	// FieldManager owns the foreign segments and the condition Federated.
	fieldManager = "atoll-sync"
	// ServiceAccount is the identity that writes them, because a field manager is not an identity.
	ServiceAccount = "atoll-sync"

	applyTimeout  = 10 * time.Second
	tokenLifetime = time.Hour
)

// Config returns base with the identity of a ServiceAccount and its own connections. It requests tokens with base. It renews them after
// four fifths of their life by the monotonic clock, and when one is refused.
func Config(base *rest.Config, namespace, serviceAccount string) (*rest.Config, error) {
	client, err := typedv1.NewForConfig(base)
	if err != nil {
		return nil, fmt.Errorf("building a client for tokens of %s/%s: %w", namespace, serviceAccount, err)
	}
	cfg := rest.AnonymousClientConfig(base)
	cfg.QPS = -1 // the budget is the limit
	// client-go shares one transport between equal configurations. A dialer of its own makes this configuration different.
	cfg.Dial = (&net.Dialer{Timeout: applyTimeout, KeepAlive: 30 * time.Second}).DialContext
	tokens := transport.NewCachedTokenSource(tokens{client.ServiceAccounts(namespace), serviceAccount})
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
	return cfg, nil
}

type tokens struct {
	accounts typedv1.ServiceAccountInterface
	name     string
}

// Token requests a token.
func (t tokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	seconds := int64(tokenLifetime / time.Second)
	asked := time.Now()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	granted, err := t.accounts.CreateToken(ctx, t.name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token of service account %s: %w", t.name, err)
	}
	life := tokenLifetime
	if s := granted.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	return &oauth2.Token{AccessToken: granted.Status.Token, Expiry: asked.Add(life * 4 / 5)}, nil
}

// +kubebuilder:rbac:groups=agents.navix.sh,resources=sandboxenvs/status,verbs=patch

// applier writes the fields of an Env that atoll-sync owns.
type applier struct{ client rest.Interface }

func newApplier(cfg *rest.Config) (applier, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath, cfg.GroupVersion = "/apis", &v1alpha1.GroupVersion
	scheme := runtime.NewScheme()
	// Otherwise the server's refusals cannot be decoded.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return applier{}, fmt.Errorf("building the sync path's client: %w", err)
	}
	return applier{client}, nil
}

func (a applier) apply(ctx context.Context, env *v1alpha1.SandboxEnv, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err := a.client.Patch(types.ApplyPatchType).
		Namespace(env.Namespace).Resource("sandboxenvs").Name(env.Name).SubResource("status").
		Param("fieldManager", fieldManager).Param("force", "true").
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("applying the foreign segments of env %s/%s: %w", env.Namespace, env.Name, err)
	}
	return nil
}
