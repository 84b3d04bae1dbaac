// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// stateConfigMap holds the worker's state in its cluster.
	stateConfigMap = "atoll-worker-state"
	incarnationKey = "incarnation"
)

// errCorruptState means that the stored state cannot be read. An operator must fix it; a guess could break I1.
var errCorruptState = errors.New("the worker's state is corrupt")

// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=configmaps,resourceNames=atoll-worker-state,verbs=get;update

// incarnations stores the highest incarnation of the cluster's workers.
type incarnations struct {
	client client.Client
	reader client.Reader // not cached
	name   types.NamespacedName
}

// next persists and returns a number that is higher than floor and all earlier ones.
func (s incarnations) next(ctx context.Context, floor uint64) (uint64, error) {
	var n uint64
	// A conflict means that another process, which no longer leads, wrote in between.
	err := retry.OnError(retry.DefaultRetry, raced, func() error {
		var err error
		n, err = s.raise(ctx, floor)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raising the incarnation: %w", err)
	}
	return n, nil
}

func raced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// get reads the state.
func (s incarnations) get(ctx context.Context) (*corev1.ConfigMap, error) {
	state := &corev1.ConfigMap{}
	if err := s.reader.Get(ctx, s.name, state); err != nil {
		return nil, err
	}
	if state.Data == nil {
		state.Data = map[string]string{}
	}
	return state, nil
}

// change changes the state, which exists since the first call of next.
func (s incarnations) change(ctx context.Context, edit func(data map[string]string)) error {
	return retry.OnError(retry.DefaultRetry, raced, func() error {
		state, err := s.get(ctx)
		if err != nil {
			return err
		}
		edit(state.Data)
		return s.client.Update(ctx, state)
	})
}

func (s incarnations) raise(ctx context.Context, floor uint64) (uint64, error) {
	state, err := s.get(ctx)
	if apierrors.IsNotFound(err) {
		n := floor + 1
		state = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name},
			Data:       map[string]string{incarnationKey: strconv.FormatUint(n, 10)},
		}
		return n, s.client.Create(ctx, state)
	}
	if err != nil {
		return 0, err
	}
	persisted, err := parseIncarnation(state.Data)
	if err != nil {
		return 0, fmt.Errorf("%w: ConfigMap %s: %w", errCorruptState, s.name, err)
	}
	n := max(persisted, floor) + 1
	state.Data[incarnationKey] = strconv.FormatUint(n, 10)
	return n, s.client.Update(ctx, state) // with the resourceVersion that was read
}

// parseIncarnation returns 0 if the key is missing, because the ConfigMap may already hold other state. Any other value must be a number
// that next could have written.
func parseIncarnation(data map[string]string) (uint64, error) {
	text, ok := data[incarnationKey]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", incarnationKey, err)
	}
	if n == 0 || n > 1<<62 {
		return 0, fmt.Errorf("reading %s: %d was never written by a worker", incarnationKey, n)
	}
	return n, nil
}
