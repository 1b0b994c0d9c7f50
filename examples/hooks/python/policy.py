"""The policy: images are pinned. Pure, so it is tested without a server."""

import json

from k8s.io.api.admission.v1.generated_pb2 import AdmissionRequest, AdmissionResponse


def judge(request: AdmissionRequest) -> AdmissionResponse:
    """Judges one request.

    Raises ValueError where the object cannot be understood: then there is no verdict, and Gatepost's failure policy
    decides.
    """
    response = AdmissionResponse(uid=request.uid, allowed=True)
    if not concerns(request):
        return response
    try:
        spec = json.loads(request.object.raw).get("spec") or {}
        containers = spec.get("containers") or []
        every = (spec.get("initContainers") or []) + containers + (spec.get("ephemeralContainers") or [])
        images = sorted({container.get("image", "") for container in every})
        unpinned = [
            f'container "{container["name"]}" runs "{container.get("image", "")}"'
            for container in every
            if not pinned(container.get("image", ""))
        ]
        response.warnings.extend(
            f'container "{container["name"]}" has no {resource} limit'
            for container in containers
            for resource in ("cpu", "memory")
            if resource not in ((container.get("resources") or {}).get("limits") or {})
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        # The exception's text could quote the object.
        raise ValueError("the object is no Pod in JSON") from None

    response.auditAnnotations["images"] = ", ".join(images)
    if unpinned:
        response.allowed = False
        response.status.status = "Failure"
        response.status.message = "images need a tag other than latest, or a digest: " + "; ".join(unpinned)
        response.status.reason = "Forbidden"
        response.status.code = 403
    return response


def concerns(request: AdmissionRequest) -> bool:
    """Is a Pod made or changed? A hook's rules say this too; a hook that trusts them alone breaks when they change."""
    return (
        (request.kind.group, request.kind.kind) == ("", "Pod")
        and request.operation in ("CREATE", "UPDATE")
        and request.subResource in ("", "ephemeralcontainers")
    )


def pinned(image: str) -> bool:
    """Does this image name one thing for ever, or nearly so?"""
    if "@" in image:
        return True
    # A colon before the last slash belongs to the registry's port.
    _, _, tag = image.rpartition("/")[2].partition(":")
    return tag not in ("", "latest")
