package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// maxReports bounds reports that wait to be sent.
	maxReports = 64
	// maxCorrections bounds corrections that are made at once.
	maxCorrections = 16
	// followStoredPause is the pause before the stream is opened again.
	followStoredPause = 200 * time.Millisecond
)

var errDraining = errors.New("Gatepost is about to end")

// Run reports the objects that are not initialized to Gatepost, and makes the corrections that it asks for, until the
// context ends. It returns at once. The client is the server's own, of its loopback: corrections are requests as any
// other.
func (i *Initialization) Run(ctx context.Context, loopback *rest.Config) error {
	client, err := dynamic.NewForConfig(loopback)
	if err != nil {
		return err
	}
	i.loopback.Store(client)
	plugin := i.plugin.Load()
	if plugin == nil {
		return nil
	}
	follower := &storedFollower{Initialization: i, client: plugin.client}
	go func() {
		for ctx.Err() == nil {
			err := follower.follow(ctx)
			if ctx.Err() == nil {
				klog.FromContext(ctx).Info("Reporting to Gatepost begins anew", "reason", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(followStoredPause):
			}
		}
	}()
	return nil
}

// A storedFollower is this server's side of gatepost.v1.Initialization/Follow.
type storedFollower struct {
	*Initialization
	client *client
	// Of the stream that is open.
	reports chan encoded
}

// follow serves one stream until it ends.
func (f *storedFollower) follow(ctx context.Context) error {
	connection, err := f.client.dial()
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := connection.NewStream(ctx, description, followStoredMethod, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	f.reports = make(chan encoded, maxReports)
	beside := func(run func(context.Context) error) {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := run(ctx); err != nil {
				end(err)
			}
		}()
	}
	beside(func(ctx context.Context) error { return f.obey(ctx, stream, beside) })
	beside(func(ctx context.Context) error { return f.reportAll(ctx, beside) })
	for {
		select {
		case report := <-f.reports:
			if err := stream.SendMsg(report); err != nil {
				// The reason is what receiving says.
				<-ctx.Done()
				return context.Cause(ctx)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *storedFollower) report(ctx context.Context, report encoded) error {
	select {
	case f.reports <- report:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reportAll reports all objects that are not initialized, and then each change of one.
func (f *storedFollower) reportAll(ctx context.Context, beside func(func(context.Context) error)) error {
	versions := map[*Storage]string{}
	for _, storage := range f.storages {
		list, err := storage.Store.List(ctx, narrowed(nil, isUnfinished))
		if err != nil {
			return err
		}
		metadata, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		versions[storage] = metadata.GetResourceVersion()
		err = meta.EachListItem(list, func(object runtime.Object) error { return f.reportUnfinished(ctx, storage, object) })
		if err != nil {
			return err
		}
	}
	if err := f.report(ctx, syncedEvent()); err != nil {
		return err
	}
	for storage, version := range versions {
		beside(func(ctx context.Context) error { return f.reportChanges(ctx, storage, version) })
	}
	return nil
}

func (f *storedFollower) reportChanges(ctx context.Context, storage *Storage, version string) error {
	options := narrowed(nil, isUnfinished)
	options.ResourceVersion = version
	changes, err := storage.Store.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer changes.Stop()
	for {
		var change watch.Event
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, ok := <-changes.ResultChan():
			if !ok {
				return errors.New("the storage has ended the watch")
			}
			change = event
		}
		switch change.Type {
		case watch.Added, watch.Modified:
			err = f.reportUnfinished(ctx, storage, change.Object)
		case watch.Deleted:
			// It is initialized, or gone.
			var metadata metav1.Object
			if metadata, err = meta.Accessor(change.Object); err == nil {
				err = f.reportStored(ctx, storage, storage.nameOf(metadata))
			}
		case watch.Error:
			err = apierrors.FromObject(change.Object)
		}
		if err != nil {
			return err
		}
	}
}

func (f *storedFollower) reportUnfinished(ctx context.Context, storage *Storage, object runtime.Object) error {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	list, err := InitializersOf(object)
	if err != nil || list == nil {
		klog.FromContext(ctx).Error(err, "An object is not reported to Gatepost", "object", klog.KObj(metadata))
		return nil
	}
	event, err := unfinishedEvent(storage.nameOf(metadata), metadata.GetResourceVersion(), list)
	if err != nil {
		return err
	}
	return f.report(ctx, event)
}

// reportStored reports an object as the storage has it now.
func (f *storedFollower) reportStored(ctx context.Context, storage *Storage, named objectName) error {
	object, err := storage.stored(ctx, named)
	switch {
	case err != nil:
		return err
	case object == nil:
		return f.report(ctx, goneEvent(named.uid))
	case IsUnfinished(object):
		return f.reportUnfinished(ctx, storage, object)
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	return f.report(ctx, initializedEvent(named.uid, metadata.GetResourceVersion()))
}

// stored returns an object, whoever may see it; nil if it is not there.
func (s *Storage) stored(ctx context.Context, named objectName) (runtime.Object, error) {
	object, err := s.Store.Get(genericapirequest.WithNamespace(ctx, named.namespace), named.name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !isSame(object, named.uid) {
		return nil, nil
	}
	return object, err
}

// obey does what Gatepost asks for.
func (f *storedFollower) obey(ctx context.Context, stream grpc.ClientStream, beside func(func(context.Context) error)) error {
	room := make(chan struct{}, maxCorrections)
	for {
		var received encoded
		if err := stream.RecvMsg(&received); err != nil {
			return err
		}
		said, err := readFollowerMessage(received)
		if err != nil {
			return err
		}
		if said.isDraining {
			return errDraining
		}
		storage := f.storages[schema.GroupResource{Group: said.object.group, Resource: said.object.resource}]
		switch {
		case said.isLook && storage == nil:
			err = f.report(ctx, goneEvent(said.object.uid))
		case said.isLook:
			err = f.reportStored(ctx, storage, said.object)
		case storage != nil:
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			beside(func(ctx context.Context) error {
				defer func() { <-room }()
				if err := storage.correct(ctx, said); err != nil {
					klog.FromContext(ctx).Info("A correction is not made; Gatepost asks for it again", "object", klog.KRef(said.object.namespace, said.object.name), "reason", err)
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
}

// correct makes one correction, while the object is as Gatepost saw it.
func (s *Storage) correct(ctx context.Context, correction *followerMessage) error {
	ctx, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	object, err := s.stored(ctx, correction.object)
	if err != nil || object == nil {
		return err
	}
	if metadata, err := meta.Accessor(object); err != nil || metadata.GetResourceVersion() != correction.resourceVersion || !IsUnfinished(object) {
		return err
	}
	switch {
	case correction.removeHead != "":
		return s.removeHead(ctx, object, correction.removeHead)
	case correction.fail != nil:
		list, err := InitializersOf(object)
		if err != nil {
			return err
		}
		list.Result = storedResult(*correction.fail)
		return s.write(ctx, object, list)
	case correction.delete:
		return s.remove(ctx, object)
	}
	return nil
}

// removeHead removes the first name from the list of an object, which it has to be.
func (s *Storage) removeHead(ctx context.Context, object runtime.Object, head string) error {
	list, err := InitializersOf(object)
	if err != nil {
		return err
	}
	if list == nil || list.Result != nil || len(list.Pending) == 0 || list.Pending[0].Name != head {
		return fmt.Errorf("%s is not the first that must act", head)
	}
	list.Pending = list.Pending[1:]
	return s.write(ctx, object, list)
}

// write changes the list of an object that is as it was read, by a request of the server itself: so it is reviewed.
func (s *Storage) write(ctx context.Context, object runtime.Object, list *Initializers) error {
	client := s.initialization.loopback.Load()
	if client == nil {
		return errors.New("the server does not serve yet")
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": metadata.GetUID(), "resourceVersion": metadata.GetResourceVersion(),
		"annotations": map[string]string{InitializersAnnotation: string(text)},
	}})
	if err != nil {
		return err
	}
	_, err = client.Resource(s.resource).Namespace(metadata.GetNamespace()).Patch(ctx, metadata.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
