package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/klog/v2"
)

const (
	// initializedField is a field of each object for the storage alone: clients cannot select by it. It comes of the
	// annotation, so that lists, watches, pages and bookmarks are those of any field selector.
	initializedField = "gatepost.dev/initialized"
	isInitialized    = "true"
	isUnfinished     = "false"
	// writeTimeout bounds a write that ends what a request has begun, also if its client has gone.
	writeTimeout = 10 * time.Second
)

// A Storage is the store of a resource whose objects are stored before they are initialized. It holds a CREATE until
// they are, hides them from who may not see them, and deletes those that have failed.
type Storage struct {
	*genericregistry.Store
	initialization *Initialization
	resource       schema.GroupVersionResource
}

var _ rest.StandardStorage = &Storage{}

// Complete completes a store as its CompleteWithOptions does, and returns what the server serves in its place, in each
// version of the resource. Gatepost's corrections are written in the version given. It is called before the server serves.
func (i *Initialization) Complete(store *genericregistry.Store, options *generic.StoreOptions, version string) (*Storage, error) {
	changed := *options
	if changed.AttrFunc == nil {
		changed.AttrFunc = storage.DefaultNamespaceScopedAttr
		if store.CreateStrategy != nil && !store.CreateStrategy.NamespaceScoped() {
			changed.AttrFunc = storage.DefaultClusterScopedAttr
		}
	}
	changed.AttrFunc = withInitialized(changed.AttrFunc)
	if predicate := store.PredicateFunc; predicate != nil {
		store.PredicateFunc = func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			selected := predicate(label, field)
			selected.GetAttrs = withInitialized(selected.GetAttrs)
			return selected
		}
	}
	if err := store.CompleteWithOptions(&changed); err != nil {
		return nil, err
	}
	resource := store.DefaultQualifiedResource
	if i.storages[resource] != nil {
		return nil, fmt.Errorf("the store of %s is completed twice: serve one in all versions", resource)
	}
	completed := &Storage{Store: store, initialization: i, resource: resource.WithVersion(version)}
	i.storages[resource] = completed
	return completed, nil
}

// withInitialized adds the field to what can be selected by.
func withInitialized(attributes storage.AttrFunc) storage.AttrFunc {
	return func(object runtime.Object) (labels.Set, fields.Set, error) {
		labels, found, err := attributes(object)
		if err != nil {
			return nil, nil, err
		}
		all := make(fields.Set, len(found)+1)
		maps.Copy(all, found)
		all[initializedField] = isInitialized
		if IsUnfinished(object) {
			all[initializedField] = isUnfinished
		}
		return labels, all, nil
	}
}

// narrowed returns the options of a read of objects that are in that state.
func narrowed(options *internalversion.ListOptions, state string) *internalversion.ListOptions {
	narrow := internalversion.ListOptions{}
	if options != nil {
		narrow = *options
	}
	selector := fields.OneTermEqualSelector(initializedField, state)
	if narrow.FieldSelector != nil && !narrow.FieldSelector.Empty() {
		selector = fields.AndSelectors(narrow.FieldSelector, selector)
	}
	narrow.FieldSelector = selector
	return &narrow
}

func (s *Storage) policy(ctx context.Context, verb ReadVerb, name string) ReadPolicy {
	namespace, _ := genericapirequest.NamespaceFrom(ctx)
	return s.initialization.ReadPolicy(ctx, Read{Verb: verb, Resource: s.resource, Namespace: namespace, Name: name})
}

// shown returns the options of a LIST or WATCH: of initialized objects, unless its user sees all.
func (s *Storage) shown(ctx context.Context, verb ReadVerb, options *internalversion.ListOptions) *internalversion.ListOptions {
	if s.policy(ctx, verb, "").ShowsAll {
		return options
	}
	return narrowed(options, isInitialized)
}

// List implements rest.Lister.
func (s *Storage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return s.Store.List(ctx, s.shown(ctx, ReadList, options))
}

// Watch implements rest.Watcher. What it shows it shows until it ends.
func (s *Storage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	return s.Store.Watch(ctx, s.shown(ctx, ReadWatch, options))
}

// Get implements rest.Getter.
func (s *Storage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := s.Store.Get(ctx, name, options)
	if err != nil || !IsUnfinished(object) {
		return object, err
	}
	policy := s.policy(ctx, ReadGet, name)
	if head := policy.late(object, time.Now()); head != "" {
		if err := s.removeHead(ctx, object, head); err != nil {
			klog.FromContext(ctx).Info("An initializer that is late is not left out", "initializer", head, "reason", err)
		} else if object, err = s.Store.Get(ctx, name, &metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	if !policy.Shows(object) {
		return nil, policy.Hidden(s.resource.GroupResource(), object)
	}
	return object, nil
}

// Create implements rest.Creater.
func (s *Storage) Create(ctx context.Context, object runtime.Object, validation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := s.Store.Create(ctx, object, s.guardedCreate(validation), options)
	if err != nil || dryrun.IsDryRun(options.DryRun) {
		return created, err
	}
	return s.held(ctx, created)
}

// Update implements rest.Updater.
func (s *Storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	// What refuses an object when it is about to become visible is why it never does.
	var unfinished runtime.Object
	var refusal *metav1.Status
	validation := func(ctx context.Context, object, old runtime.Object) error {
		unfinished, refusal = nil, nil
		if err := s.guard(object, old); err != nil || updateValidation == nil {
			return err
		}
		err := updateValidation(ctx, object, old)
		if IsUnfinished(old) && !IsUnfinished(object) {
			unfinished, refusal = old, denial(err)
		}
		return err
	}
	updated, created, err := s.Store.Update(ctx, name, info, s.guardedCreate(createValidation), validation, forceAllowCreate, options)
	switch {
	case dryrun.IsDryRun(options.DryRun):
		return updated, created, err
	case err != nil && refusal != nil:
		if updated, err = s.fail(ctx, unfinished, *refusal); err != nil {
			return nil, false, err
		}
	case err != nil:
		return nil, false, err
	case created:
		updated, err = s.held(ctx, updated)
		return updated, true, err
	}
	if list, err := InitializersOf(updated); err == nil && list != nil && list.Result != nil {
		// Who watches has seen why. If this fails, Gatepost asks for it again.
		if err := s.remove(ctx, updated); err != nil {
			klog.FromContext(ctx).Error(err, "An object that failed to initialize is not deleted yet", "object", klog.KRef(genericapirequest.NamespaceValue(ctx), name))
		}
	}
	return updated, false, nil
}

// Delete implements rest.GracefulDeleter. An unfinished object is gone at once, whatever its finalizers, since nobody has
// begun to use it, and is not shown.
func (s *Storage) Delete(ctx context.Context, name string, validation rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	key, err := s.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	var preconditions storage.Preconditions
	if wanted := options.Preconditions; wanted != nil {
		preconditions = storage.Preconditions{UID: wanted.UID, ResourceVersion: wanted.ResourceVersion}
	}
	deleted := s.NewFunc()
	err = s.Storage.Delete(ctx, key, deleted, &preconditions, func(ctx context.Context, object runtime.Object) error {
		if !IsUnfinished(object) {
			return errInitialized
		}
		if validation == nil {
			return nil
		}
		return validation(ctx, object)
	}, dryrun.IsDryRun(options.DryRun), nil, storage.DeleteOptions{})
	switch {
	case errors.Is(err, errInitialized):
		return s.Store.Delete(ctx, name, validation, options)
	case err != nil:
		return nil, false, storeerr.InterpretDeleteError(err, s.resource.GroupResource(), name)
	}
	if s.AfterDelete != nil {
		s.AfterDelete(deleted, options)
	}
	metadata, err := meta.Accessor(deleted)
	if err != nil {
		return nil, false, apierrors.NewInternalError(err)
	}
	details := &metav1.StatusDetails{Name: metadata.GetName(), Group: s.resource.Group, Kind: s.resource.Resource, UID: metadata.GetUID()}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: details}, true, nil
}

var errInitialized = errors.New("it is initialized")

// DeleteCollection implements rest.CollectionDeleter. It deletes what its user does not see, too, and does not show it.
func (s *Storage) DeleteCollection(ctx context.Context, validation rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	deleted, err := s.Store.DeleteCollection(ctx, validation, options, listOptions)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(deleted)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	shown := make([]runtime.Object, 0, len(items))
	for _, item := range items {
		if !IsUnfinished(item) {
			shown = append(shown, item)
			continue
		}
		if dryrun.IsDryRun(options.DryRun) {
			continue
		}
		// The store has left those that have finalizers.
		metadata, err := meta.Accessor(item)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		again, uid := options.DeepCopy(), metadata.GetUID()
		again.Preconditions = &metav1.Preconditions{UID: &uid}
		if _, _, err := s.Delete(ctx, metadata.GetName(), validation, again); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	if len(shown) == len(items) || s.policy(ctx, ReadList, "").ShowsAll {
		return deleted, nil
	}
	return deleted, meta.SetList(deleted, shown)
}

// guard refuses what nobody judges without the plugin.
func (s *Storage) guard(objects ...runtime.Object) error {
	if s.initialization.plugin.Load() != nil {
		return nil
	}
	for _, object := range objects {
		if IsUnfinished(object) {
			return apierrors.NewForbidden(s.resource.GroupResource(), "", fmt.Errorf("the admission plugin %s is switched off, so an object with the annotation %s can only be deleted", PluginName, InitializersAnnotation))
		}
	}
	return nil
}

func (s *Storage) guardedCreate(validation rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, object runtime.Object) error {
		if err := s.guard(object); err != nil || validation == nil {
			return err
		}
		return validation(ctx, object)
	}
}

// What plugins of k8s.io/apiserver say, with 403, of a request that they cannot judge yet: one whose informers are not
// filled, and ResourceQuota of a quota that is new.
const (
	notReady      = "not yet ready to handle request"
	noQuotaStatus = "status unknown for quota: "
)

// denial returns what a refusal says; nil if the request was not refused, or may be made again.
func denial(err error) *metav1.Status {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		return nil
	}
	said := refused.Status()
	switch {
	case said.Code < http.StatusBadRequest || said.Code >= http.StatusInternalServerError:
		return nil
	case said.Code == http.StatusConflict, said.Code == http.StatusTooManyRequests, said.Code == http.StatusRequestTimeout:
		return nil
	case strings.HasSuffix(said.Message, notReady), strings.Contains(said.Message, noQuotaStatus):
		return nil
	}
	return &said
}

var errManyHeld = errors.New("as many CREATEs as may be are held")

// held waits until a new object is initialized, and returns it as it is then.
func (s *Storage) held(ctx context.Context, created runtime.Object) (runtime.Object, error) {
	plugin := s.initialization.plugin.Load()
	if !IsUnfinished(created) || includesUnfinished(ctx) || plugin == nil {
		return created, nil
	}
	metadata, err := meta.Accessor(created)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	until := time.Now().Add(maxHold)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	bounded, cancel := context.WithDeadline(ctx, until.Add(-holdMargin))
	defer cancel()
	late := func(reason error) error {
		klog.FromContext(ctx).V(2).Info("A CREATE is not held to its end", "object", klog.KObj(metadata), "reason", reason)
		refusal := apierrors.NewTimeoutError(fmt.Sprintf("%s %q exists with uid %s and is not initialized", s.resource.GroupResource(), metadata.GetName(), metadata.GetUID()), 0)
		refusal.ErrStatus.Details.UID, refusal.ErrStatus.ResourceVersion = metadata.GetUID(), metadata.GetResourceVersion()
		return refusal
	}
	// Each takes one of the server's places for requests that change something, which initializers need as well.
	defer s.initialization.held.Add(-1)
	if s.initialization.held.Add(1) > int64(plugin.configuration.MaxHolds) {
		return nil, late(errManyHeld)
	}
	request := holdMessage(s.nameOf(metadata), metadata.GetResourceVersion())
	for {
		end, err := plugin.client.hold(bounded, request)
		switch {
		case err != nil:
			return nil, late(err)
		case end.refusal != nil:
			return nil, rejection(end.refusal)
		}
		// The storage has the last word.
		now, err := s.Store.Get(genericapirequest.WithNamespace(ctx, metadata.GetNamespace()), metadata.GetName(), &metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil || !isSame(now, metadata.GetUID()) {
			return nil, apierrors.NewInternalError(fmt.Errorf("%s %q was deleted while it was initialized", s.resource.GroupResource(), metadata.GetName()))
		}
		if !IsUnfinished(now) {
			return now, nil
		}
		select {
		case <-bounded.Done():
		case <-time.After(holdPause):
		}
	}
}

func (s *Storage) nameOf(metadata metav1.Object) objectName {
	return objectName{group: s.resource.Group, resource: s.resource.Resource, namespace: metadata.GetNamespace(), name: metadata.GetName(), uid: metadata.GetUID()}
}

func isSame(object runtime.Object, uid types.UID) bool {
	metadata, err := meta.Accessor(object)
	return err == nil && metadata.GetUID() == uid
}

// fail writes the reason into the list of an object that is as it was read.
func (s *Storage) fail(ctx context.Context, object runtime.Object, why metav1.Status) (runtime.Object, error) {
	was, err := meta.Accessor(object)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ctx, cancel := toTheEnd(ctx, was)
	defer cancel()
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, stored runtime.Object) (runtime.Object, error) {
		is, err := meta.Accessor(stored)
		if err != nil {
			return nil, err
		}
		if is.GetUID() != was.GetUID() || is.GetResourceVersion() != was.GetResourceVersion() {
			return nil, apierrors.NewConflict(s.resource.GroupResource(), was.GetName(), errors.New(genericregistry.OptimisticLockErrorMsg))
		}
		list, err := InitializersOf(stored)
		if err != nil || list == nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("%s %q has no list of initializers: %w", s.resource.GroupResource(), was.GetName(), err))
		}
		list.Result = storedResult(why)
		failed := stored.DeepCopyObject()
		return failed, list.set(failed)
	})
	updated, _, err := s.Store.Update(ctx, was.GetName(), info, nil, nil, false, &metav1.UpdateOptions{})
	return updated, err
}

// remove deletes an object that is as it was read, whatever its finalizers.
func (s *Storage) remove(ctx context.Context, object runtime.Object) error {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	ctx, cancel := toTheEnd(ctx, metadata)
	defer cancel()
	key, err := s.KeyFunc(ctx, metadata.GetName())
	if err != nil {
		return err
	}
	uid, version := metadata.GetUID(), metadata.GetResourceVersion()
	deleted := s.NewFunc()
	err = s.Storage.Delete(ctx, key, deleted, &storage.Preconditions{UID: &uid, ResourceVersion: &version}, rest.ValidateAllObjectFunc, false, nil, storage.DeleteOptions{})
	switch {
	case storage.IsNotFound(err):
		return nil
	case err != nil:
		return storeerr.InterpretDeleteError(err, s.resource.GroupResource(), metadata.GetName())
	}
	if s.AfterDelete != nil {
		s.AfterDelete(deleted, &metav1.DeleteOptions{})
	}
	return nil
}

// toTheEnd returns a context for a write of an object, which does not end with the request.
func toTheEnd(ctx context.Context, metadata metav1.Object) (context.Context, context.CancelFunc) {
	ctx = genericapirequest.WithNamespace(context.WithoutCancel(ctx), metadata.GetNamespace())
	return context.WithTimeout(ctx, writeTimeout)
}
