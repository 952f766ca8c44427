"""Ray casting of a room with one object: floor, walls, light, shadow and highlight.

Vectors are (3, R) float32, in units of the room.
"""

from __future__ import annotations

import math

import numpy as np

WALL = 3.0  # distance from the middle of the room; the object is about 1.8 high
CAMERA = (6.5, 2.6)  # distance from the middle of the room, height
LOOKS_AT = 0.95  # height
HALF_VIEW = math.tan(math.radians(19.0))  # half the width of the image at distance 1
LIGHT = (np.array([[-0.5], [-0.65], [1.0]]) / np.linalg.norm([-0.5, -0.65, 1.0])).astype(
    np.float32
)  # direction towards the light, fixed to the room
AMBIENT, DIFFUSE, SHADOW, HIGHLIGHT, POLISH = 0.42, 0.58, 0.62, 0.35, 30
RAYS = 192  # per side of a small image; several per pixel, so that edges are smooth
CUBE = 0.78  # half a side
CYLINDER = (0.82, 1.65)  # radius, height
SPHERE = 0.98  # radius
CAPSULE = (0.64, 2.2)  # radius, height
FAR, NEAR = np.float32(np.inf), np.float32(1e-5)
Hit = tuple[np.ndarray, np.ndarray]  # distance (R,), inf without a hit, and normal (3, R)


def cast_view(scale: float, shape: int, orientation: float, size: int) -> np.ndarray:
    """Return (4, size, size) float32: lit floor, wall and object, and the white highlight."""
    oversampling = max(2, -(-RAYS // size))
    eye, direction = _camera_rays(orientation, size * oversampling)
    to_object, normal = _hit_object(eye, direction, shape, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        # where the ray leaves the room
        sides = (np.copysign(WALL, direction[:2]) - eye[:2]) / direction[:2]
        to_floor = np.where(direction[2] < 0, -eye[2] / direction[2], FAR)
    is_back = sides[1] < sides[0]
    to_wall = np.where(is_back, sides[1], sides[0])
    surface = np.argmin([to_floor, to_wall, to_object], axis=0)  # 0 floor, 1 wall, 2 object
    wall_facing = np.where(
        is_back,
        np.copysign(LIGHT[1], -direction[1] * LIGHT[1]),
        np.copysign(LIGHT[0], -direction[0] * LIGHT[0]),
    )  # normal of the wall . light
    object_facing = _dot(normal, LIGHT)
    facing = np.where(surface == 2, object_facing, np.where(surface == 1, wall_facing, LIGHT[2]))
    light = AMBIENT + DIFFUSE * np.maximum(facing, 0.0)
    room = np.flatnonzero(surface != 2)
    point = eye + np.minimum(to_floor, to_wall)[room] * direction[:, room]
    light[room[_hit_object(point, LIGHT, shape, scale)[0] < FAR]] *= SHADOW
    on_object = np.flatnonzero(surface == 2)
    half = LIGHT - direction[:, on_object]
    shine = _dot(normal[:, on_object], half) / np.sqrt(_dot(half, half))
    white = np.zeros_like(light)
    white[on_object] = HIGHLIGHT * np.clip(shine, 0.0, 1.0) ** POLISH
    layers = np.stack([light * (surface == i) for i in range(3)] + [white])
    rays = layers.reshape(4, size, oversampling, size, oversampling)
    return rays.mean(axis=(2, 4), dtype=np.float32)


def _camera_rays(orientation: float, rays: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the camera (3, 1) and unit directions (3, rays * rays), row by row from top left."""
    angle = math.radians(orientation)
    eye = np.array([CAMERA[0] * math.sin(angle), -CAMERA[0] * math.cos(angle), CAMERA[1]])
    ahead = np.array([0.0, 0.0, LOOKS_AT]) - eye
    ahead /= np.linalg.norm(ahead)
    right = np.array([math.cos(angle), math.sin(angle), 0.0])
    up = np.cross(right, ahead)
    steps = HALF_VIEW * ((2 * np.arange(rays) + 1) / rays - 1)
    direction = (
        ahead[:, None, None]
        + steps[None, None, :] * right[:, None, None]
        - steps[None, :, None] * up[:, None, None]
    )
    direction = direction.reshape(3, -1).astype(np.float32)
    return eye[:, None].astype(np.float32), direction / np.sqrt(_dot(direction, direction))


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


# ---- the object -----------------------------------------------------------------------------
def _hit_object(origin: np.ndarray, direction: np.ndarray, shape: int, scale: float) -> Hit:
    """Return where rays (3, R) meet the object: cube, cylinder, sphere or capsule."""
    if scale <= 0:
        rays = np.broadcast(origin[0], direction[0]).size
        return np.full(rays, FAR), np.zeros((3, rays), np.float32)
    hit = (_hit_cube, _hit_cylinder, _hit_sphere, _hit_capsule)[shape]
    distance, normal = hit(origin / np.float32(scale), direction)
    return distance * np.float32(scale), normal


def _hit_cube(origin: np.ndarray, direction: np.ndarray) -> Hit:
    centre = np.array([[0.0], [0.0], [CUBE]], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [(side * np.float32(CUBE) + centre - origin) / direction for side in (-1, 1)]
    enter, leave = np.fmin(*ends), np.fmax(*ends)
    first, axis = enter.max(axis=0), enter.argmax(axis=0)
    distance = np.where((first < leave.min(axis=0)) & (first > NEAR), first, FAR)
    return distance, np.where(np.arange(3)[:, None] == axis, -np.sign(direction), np.float32(0.0))


def _hit_cylinder(origin: np.ndarray, direction: np.ndarray) -> Hit:
    radius, height = CYLINDER
    side, normal = _hit_tube(origin, direction, radius, 0.0, height)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = (np.float32(height) - origin[2]) / direction[2]
        squared = (origin[0] + top * direction[0]) ** 2 + (origin[1] + top * direction[1]) ** 2
        top = np.where((top > NEAR) & (squared <= radius**2), top, FAR)
    up = np.array([[0.0], [0.0], [1.0]], np.float32)
    return np.minimum(side, top), np.where(top < side, up, normal)


def _hit_sphere(origin: np.ndarray, direction: np.ndarray) -> Hit:
    return _hit_ball(origin, direction, SPHERE, SPHERE)


def _hit_capsule(origin: np.ndarray, direction: np.ndarray) -> Hit:
    radius, height = CAPSULE
    distance, normal = _hit_tube(origin, direction, radius, radius, height - radius)
    for middle in (radius, height - radius):
        ball_distance, ball_normal = _hit_ball(origin, direction, radius, middle)
        normal = np.where(ball_distance < distance, ball_normal, normal)
        distance = np.minimum(distance, ball_distance)
    return distance, normal


def _hit_ball(origin: np.ndarray, direction: np.ndarray, radius: float, height: float) -> Hit:
    """Hit a ball whose centre is at this height above the middle of the floor."""
    offset = origin - np.array([[0.0], [0.0], [height]], np.float32)
    along = _dot(offset, direction)
    discriminant = along**2 - _dot(offset, offset) + np.float32(radius**2)
    distance = -along - np.sqrt(np.maximum(discriminant, 0))
    normal = (offset + distance * direction) / np.float32(radius)
    return np.where((discriminant > 0) & (distance > NEAR), distance, FAR), normal


def _hit_tube(
    origin: np.ndarray, direction: np.ndarray, radius: float, low: float, high: float
) -> Hit:
    """Hit the upright round side between two heights."""
    a = direction[0] ** 2 + direction[1] ** 2
    b = origin[0] * direction[0] + origin[1] * direction[1]
    discriminant = b**2 - a * (origin[0] ** 2 + origin[1] ** 2 - np.float32(radius**2))
    distance = (-b - np.sqrt(np.maximum(discriminant, 0))) / np.maximum(a, NEAR)
    point = origin + distance * direction
    is_hit = (discriminant > 0) & (distance > NEAR) & (point[2] >= low) & (point[2] <= high)
    outward = np.array([[1.0 / radius], [1.0 / radius], [0.0]], np.float32)
    return np.where(is_hit, distance, FAR), point * outward
